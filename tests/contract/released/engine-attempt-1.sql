BEGIN TRANSACTION;
CREATE TABLE application_versions (
    version_id TEXT NOT NULL PRIMARY KEY,
    version_name TEXT NOT NULL UNIQUE,
    version_timestamp INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000),
    created_at INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000)
, "application_name" TEXT DEFAULT NULL);
INSERT INTO "application_versions" VALUES('93773530-131f-4539-aee4-ab696c7d37c5','attempt-1',1796033098000,1796033098000,'agent-swarm');
CREATE TABLE dbos_migrations (version INTEGER NOT NULL PRIMARY KEY);
INSERT INTO "dbos_migrations" VALUES(125);
CREATE TABLE notifications (
    message_uuid TEXT NOT NULL DEFAULT (hex(randomblob(16))) PRIMARY KEY,
    destination_uuid TEXT NOT NULL,
    topic TEXT,
    message TEXT NOT NULL,
    created_at_epoch_ms INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000), "serialization" TEXT DEFAULT NULL, "consumed" BOOLEAN NOT NULL DEFAULT FALSE, consumed_by_function_id INTEGER,
    FOREIGN KEY (destination_uuid) REFERENCES workflow_status(workflow_uuid) 
        ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE TABLE "operation_outputs" (
    workflow_uuid TEXT NOT NULL,
    function_id INTEGER NOT NULL,
    function_name TEXT NOT NULL DEFAULT '',
    output TEXT,
    error TEXT,
    child_workflow_id TEXT,
    started_at_epoch_ms INTEGER,
    completed_at_epoch_ms INTEGER,
    serialization TEXT,
    application_name TEXT DEFAULT NULL,
    retention_timestamp INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000),
    PRIMARY KEY (workflow_uuid, function_id)
);
INSERT INTO "operation_outputs" VALUES('done',1,'prepare','gASVCwAAAAAAAACMB1BSRVBBUkWULg==',NULL,NULL,1796033098787,1796033098808,'py_pickle','agent-swarm',1796033098000);
INSERT INTO "operation_outputs" VALUES('done',2,'work','gASVCAAAAAAAAACMBFdPUkuULg==',NULL,NULL,1796033098836,1796033098839,'py_pickle','agent-swarm',1796033098000);
INSERT INTO "operation_outputs" VALUES('done',3,'check','gASVCQAAAAAAAACMBUNIRUNLlC4=',NULL,NULL,1796033098844,1796033098845,'py_pickle','agent-swarm',1796033098000);
INSERT INTO "operation_outputs" VALUES('done',4,'deliver','gASVCwAAAAAAAACMB0RFTElWRVKULg==',NULL,NULL,1796033098848,1796033098849,'py_pickle','agent-swarm',1796033098000);
INSERT INTO "operation_outputs" VALUES('interrupted',1,'prepare','gASVCwAAAAAAAACMB1BSRVBBUkWULg==',NULL,NULL,1796033098860,1796033098861,'py_pickle','agent-swarm',1796033098000);
CREATE TABLE queues (
    queue_id TEXT PRIMARY KEY DEFAULT (hex(randomblob(16))),
    name TEXT NOT NULL UNIQUE,
    concurrency INTEGER,
    worker_concurrency INTEGER,
    rate_limit_max INTEGER,
    rate_limit_period_sec REAL,
    priority_enabled BOOLEAN NOT NULL DEFAULT FALSE,
    partition_queue BOOLEAN NOT NULL DEFAULT FALSE,
    polling_interval_sec REAL NOT NULL DEFAULT 1.0,
    created_at INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000),
    updated_at INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000)
, "application_name" TEXT DEFAULT NULL, "partition_concurrency" INTEGER DEFAULT NULL, "partition_worker_concurrency" INTEGER DEFAULT NULL, "partition_rate_limit_max" INTEGER DEFAULT NULL, "partition_rate_limit_period_sec" REAL DEFAULT NULL);
CREATE TABLE streams (
    workflow_uuid TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    "offset" INTEGER NOT NULL, function_id INTEGER NOT NULL DEFAULT 0, "serialization" TEXT DEFAULT NULL,
    PRIMARY KEY (workflow_uuid, key, "offset"),
    FOREIGN KEY (workflow_uuid) REFERENCES workflow_status(workflow_uuid) 
        ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE TABLE workflow_events (
    workflow_uuid TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL, "serialization" TEXT DEFAULT NULL,
    PRIMARY KEY (workflow_uuid, key),
    FOREIGN KEY (workflow_uuid) REFERENCES workflow_status(workflow_uuid) 
        ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE TABLE workflow_events_history (
    workflow_uuid TEXT NOT NULL,
    function_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL, "serialization" TEXT DEFAULT NULL,
    PRIMARY KEY (workflow_uuid, function_id, key),
    FOREIGN KEY (workflow_uuid) REFERENCES workflow_status(workflow_uuid)
        ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE TABLE workflow_input (
    workflow_uuid TEXT NOT NULL PRIMARY KEY,
    inputs TEXT,
    retention_timestamp INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000)
);
INSERT INTO "workflow_input" VALUES('done','gASVIAAAAAAAAAB9lCiMBGFyZ3OUjARkb25llIWUjAZrd2FyZ3OUfZR1Lg==',1796033098000);
INSERT INTO "workflow_input" VALUES('interrupted','gASVJwAAAAAAAAB9lCiMBGFyZ3OUjAtpbnRlcnJ1cHRlZJSFlIwGa3dhcmdzlH2UdS4=',1796033098000);
CREATE TABLE workflow_output (
    workflow_uuid TEXT NOT NULL PRIMARY KEY,
    output TEXT,
    error TEXT,
    retention_timestamp INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000)
);
INSERT INTO "workflow_output" VALUES('done','gASVHgAAAAAAAACMGlBSRVBBUkUgV09SSyBDSEVDSyBERUxJVkVSlC4=',NULL,1796033098000);
CREATE TABLE workflow_schedules (
    schedule_id TEXT PRIMARY KEY,
    schedule_name TEXT NOT NULL UNIQUE,
    workflow_name TEXT NOT NULL,
    workflow_class_name TEXT,
    schedule TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'ACTIVE',
    context TEXT NOT NULL
, "last_fired_at" TEXT DEFAULT NULL, "automatic_backfill" BOOLEAN NOT NULL DEFAULT FALSE, "cron_timezone" TEXT DEFAULT NULL, "queue_name" TEXT DEFAULT NULL, "application_name" TEXT DEFAULT NULL);
CREATE TABLE workflow_status (
    workflow_uuid TEXT PRIMARY KEY,
    status TEXT,
    name TEXT,
    authenticated_user TEXT,
    assumed_role TEXT,
    authenticated_roles TEXT,
    request TEXT,
    output TEXT,
    error TEXT,
    executor_id TEXT,
    created_at INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000),
    updated_at INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000),
    application_version TEXT,
    application_id TEXT,
    class_name TEXT DEFAULT NULL,
    config_name TEXT DEFAULT NULL,
    recovery_attempts INTEGER DEFAULT 0,
    queue_name TEXT,
    workflow_timeout_ms INTEGER,
    workflow_deadline_epoch_ms INTEGER,
    inputs TEXT,
    started_at_epoch_ms INTEGER,
    deduplication_id TEXT,
    priority INTEGER NOT NULL DEFAULT 0
, queue_partition_key TEXT, forked_from TEXT, "owner_xid" TEXT DEFAULT NULL, "parent_workflow_id" TEXT DEFAULT NULL, "serialization" TEXT DEFAULT NULL, "delay_until_epoch_ms" BIGINT DEFAULT NULL, "was_forked_from" BOOLEAN NOT NULL DEFAULT FALSE, "rate_limited" BOOLEAN NOT NULL DEFAULT FALSE, "completed_at" BIGINT, "attributes" TEXT, "schedule_name" TEXT, "debounce_deadline_epoch_ms" BIGINT DEFAULT NULL, "is_debounced" BOOLEAN NOT NULL DEFAULT FALSE, "application_name" TEXT DEFAULT NULL, "creator_xid" TEXT DEFAULT NULL);
INSERT INTO "workflow_status" VALUES('done','SUCCESS','attempt',NULL,NULL,NULL,NULL,NULL,NULL,'swarm',1796033098000,1796033098000,'attempt-1','',NULL,NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,'py_pickle',NULL,0,0,1796033098000,'null',NULL,NULL,0,'agent-swarm','cc8ec402-1298-44c6-a636-5380ffcab926');
INSERT INTO "workflow_status" VALUES('interrupted','PENDING','attempt',NULL,NULL,NULL,NULL,NULL,NULL,'swarm',1796033098000,1796033098000,'attempt-1','',NULL,NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,'d29b0fd2-6deb-4079-beb1-68bd998f7f07',NULL,'py_pickle',NULL,0,0,NULL,'null',NULL,NULL,0,'agent-swarm','d29b0fd2-6deb-4079-beb1-68bd998f7f07');
CREATE INDEX workflow_status_created_at_index ON workflow_status (created_at);
CREATE INDEX idx_workflow_topic ON notifications (destination_uuid, topic);
CREATE INDEX "idx_workflow_status_delayed" ON "workflow_status" ("delay_until_epoch_ms") WHERE status = 'DELAYED';
CREATE INDEX "idx_workflow_status_forked_from" ON "workflow_status" ("forked_from") WHERE "forked_from" IS NOT NULL;
CREATE INDEX "idx_workflow_status_parent_workflow_id" ON "workflow_status" ("parent_workflow_id") WHERE "parent_workflow_id" IS NOT NULL;
CREATE UNIQUE INDEX "uq_workflow_status_dedup_id" ON "workflow_status" ("queue_name", "deduplication_id") WHERE "deduplication_id" IS NOT NULL;
CREATE INDEX "idx_workflow_status_pending" ON "workflow_status" ("created_at") WHERE "status" = 'PENDING';
CREATE INDEX "idx_workflow_status_failed" ON "workflow_status" ("status", "created_at") WHERE "status" IN ('ERROR', 'CANCELLED', 'MAX_RECOVERY_ATTEMPTS_EXCEEDED');
CREATE INDEX "idx_workflow_status_rate_limited" ON "workflow_status" ("queue_name", "started_at_epoch_ms") WHERE "rate_limited" = TRUE;
CREATE INDEX "idx_workflow_status_completed_at" ON "workflow_status" ("completed_at") WHERE "completed_at" IS NOT NULL;
CREATE INDEX "idx_workflow_status_started_at" ON "workflow_status" ("started_at_epoch_ms") WHERE "started_at_epoch_ms" IS NOT NULL;
CREATE INDEX "idx_workflow_status_schedule_name" ON "workflow_status" ("schedule_name") WHERE "schedule_name" IS NOT NULL;
CREATE UNIQUE INDEX "uq_application_versions_owner_version"
    ON application_versions ("application_name", "version_name")
    WHERE "application_name" IS NOT NULL;
CREATE UNIQUE INDEX "uq_application_versions_unclaimed_version"
    ON application_versions ("version_name")
    WHERE "application_name" IS NULL;
CREATE INDEX idx_workflow_input_retention
    ON workflow_input (retention_timestamp);
CREATE INDEX idx_workflow_output_retention
    ON workflow_output (retention_timestamp);
CREATE INDEX idx_operation_outputs_retention
    ON operation_outputs (retention_timestamp);
CREATE INDEX "idx_workflow_status_in_flight_v2" ON "workflow_status" ("queue_name", "status", "priority", "created_at", "application_name") WHERE "status" IN ('ENQUEUED', 'PENDING');
CREATE INDEX "idx_workflow_status_partition_dequeue_v3" ON "workflow_status" ("queue_name", "status", "queue_partition_key", "priority", "created_at", "workflow_uuid", "application_name") WHERE "status" IN ('ENQUEUED', 'PENDING') AND "queue_partition_key" IS NOT NULL;
CREATE INDEX "idx_operation_outputs_completed_at_function_name_v2" ON "operation_outputs" ("completed_at_epoch_ms", "function_name", "application_name");
CREATE INDEX "idx_workflow_status_deadline" ON "workflow_status" ("workflow_deadline_epoch_ms") WHERE "status" IN ('ENQUEUED', 'PENDING', 'DELAYED') AND "workflow_deadline_epoch_ms" IS NOT NULL;
CREATE INDEX "idx_application_versions_timestamp" ON "application_versions" ("version_timestamp" DESC);
CREATE INDEX "idx_application_versions_owner_timestamp" ON "application_versions" ("application_name", "version_timestamp" DESC);
COMMIT;
