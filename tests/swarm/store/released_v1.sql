-- What release 0.1 of the daemon wrote: its own statements and rows, with two attempts under way, one delivering.
BEGIN TRANSACTION;
CREATE TABLE attempts (
	id TEXT NOT NULL, 
	task TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	tier TEXT NOT NULL, 
	strategy TEXT NOT NULL, 
	carries TEXT, 
	started FLOAT NOT NULL, 
	ended FLOAT, 
	ending TEXT, 
	detail TEXT NOT NULL, 
	steps INTEGER NOT NULL, 
	tokens INTEGER NOT NULL, 
	wall FLOAT NOT NULL, 
	salvage TEXT, 
	result TEXT, 
	verdict TEXT, 
	PRIMARY KEY (id), 
	UNIQUE (task, number), 
	FOREIGN KEY(task) REFERENCES tasks (id)
);
INSERT INTO "attempts" VALUES('done-1-1d8e','done',1,'small','agent',NULL,1764000004.0,1764000011.0,'finished','because',3,1234,2.5,NULL,'{"conclusion":{"ending":"finished","title":"","summary":"","model":"","strategy":""},"sealed":null,"report":null,"fault":null}','{"kind": "receipt", "proposal": "p1", "url": "https://forge.example/1", "branch": "swarm/done", "commit": "c0ffee"}');
INSERT INTO "attempts" VALUES('second-1-fc39','second',1,'small','agent',NULL,1764000017.0,1764000021.0,'finished','because',0,0,0.0,NULL,'{"conclusion":{"ending":"finished","title":"","summary":"","model":"","strategy":""},"sealed":null,"report":null,"fault":null}',NULL);
INSERT INTO "attempts" VALUES('third-1-17eb','third',1,'small','agent',NULL,1764000027.0,1764000031.0,'gave_up','because',0,0,0.0,NULL,'{"conclusion":{"ending":"gave_up","title":"","summary":"","model":"","strategy":""},"sealed":null,"report":null,"fault":null}',NULL);
INSERT INTO "attempts" VALUES('third-2-80d4','third',2,'small','agent',NULL,1764000038.0,1764000042.0,'finished','because',0,0,0.0,NULL,'{"conclusion":{"ending":"finished","title":"","summary":"","model":"","strategy":""},"sealed":null,"report":null,"fault":null}',NULL);
INSERT INTO "attempts" VALUES('running-1-673a','running',1,'small','agent',NULL,1764000052.0,NULL,NULL,'',7,4321,60.0,'refs/salvage/running',NULL,NULL);
INSERT INTO "attempts" VALUES('delivering-1-b17b','delivering',1,'small','agent',NULL,1764000063.0,NULL,NULL,'',0,0,0.0,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES('dying-1-04d8','dying',1,'small','agent',NULL,1764000072.0,NULL,NULL,'',0,0,0.0,NULL,NULL,NULL);
CREATE TABLE steps (
	task TEXT NOT NULL, 
	seq INTEGER NOT NULL, 
	attempt TEXT, 
	at FLOAT NOT NULL, 
	kind TEXT NOT NULL, 
	data TEXT NOT NULL, 
	PRIMARY KEY (task, seq), 
	FOREIGN KEY(task) REFERENCES tasks (id)
)
 WITHOUT ROWID

;
INSERT INTO "steps" VALUES('delivering',1,NULL,1764000061.0,'state','{"from": null, "to": "queued", "reason": "submitted"}');
INSERT INTO "steps" VALUES('delivering',2,'delivering-1-b17b',1764000064.0,'attempt','{"number": 1, "tier": "small", "strategy": "agent", "carries": null}');
INSERT INTO "steps" VALUES('delivering',3,NULL,1764000066.0,'state','{"from": "queued", "to": "running", "reason": "claimed"}');
INSERT INTO "steps" VALUES('delivering',4,'delivering-1-b17b',1764000068.0,'state','{"from": "running", "to": "delivering", "reason": "the checks passed"}');
INSERT INTO "steps" VALUES('done',1,NULL,1764000002.0,'state','{"from": null, "to": "queued", "reason": "submitted"}');
INSERT INTO "steps" VALUES('done',2,'done-1-1d8e',1764000005.0,'attempt','{"number": 1, "tier": "small", "strategy": "agent", "carries": null}');
INSERT INTO "steps" VALUES('done',3,NULL,1764000007.0,'state','{"from": "queued", "to": "running", "reason": "claimed"}');
INSERT INTO "steps" VALUES('done',4,'done-1-1d8e',1764000008.0,'model_call','{"prompt_tokens": 5}');
INSERT INTO "steps" VALUES('done',5,'done-1-1d8e',1764000010.0,'state','{"from": "running", "to": "delivering", "reason": "passed"}');
INSERT INTO "steps" VALUES('done',6,'done-1-1d8e',1764000013.0,'state','{"from": "delivering", "to": "delivered", "reason": "because"}');
INSERT INTO "steps" VALUES('dying',1,NULL,1764000070.0,'state','{"from": null, "to": "queued", "reason": "submitted"}');
INSERT INTO "steps" VALUES('dying',2,'dying-1-04d8',1764000073.0,'attempt','{"number": 1, "tier": "small", "strategy": "agent", "carries": null}');
INSERT INTO "steps" VALUES('dying',3,NULL,1764000075.0,'state','{"from": "queued", "to": "running", "reason": "claimed"}');
INSERT INTO "steps" VALUES('dying',4,NULL,1764000076.0,'cancel','{}');
INSERT INTO "steps" VALUES('running',1,NULL,1764000050.0,'state','{"from": null, "to": "queued", "reason": "submitted"}');
INSERT INTO "steps" VALUES('running',2,'running-1-673a',1764000053.0,'attempt','{"number": 1, "tier": "small", "strategy": "agent", "carries": null}');
INSERT INTO "steps" VALUES('running',3,NULL,1764000055.0,'state','{"from": "queued", "to": "running", "reason": "claimed"}');
INSERT INTO "steps" VALUES('running',4,'running-1-673a',1764000056.0,'phase_started','{"phase": "work"}');
INSERT INTO "steps" VALUES('running',5,'running-1-673a',1764000057.0,'edit','{"path": "a.py", "changed": true}');
INSERT INTO "steps" VALUES('running',6,'running-1-673a',1764000058.0,'salvage','{"ref": "refs/salvage/running", "tree": "tttttttttttttttttttttttttttttttttttttttt", "sandbox": "box-1"}');
INSERT INTO "steps" VALUES('running',7,'running-1-673a',1764000059.0,'note','{"text": "größer ? than"}');
INSERT INTO "steps" VALUES('second',1,NULL,1764000015.0,'state','{"from": null, "to": "queued", "reason": "submitted"}');
INSERT INTO "steps" VALUES('second',2,'second-1-fc39',1764000018.0,'attempt','{"number": 1, "tier": "small", "strategy": "agent", "carries": null}');
INSERT INTO "steps" VALUES('second',3,NULL,1764000020.0,'state','{"from": "queued", "to": "running", "reason": "claimed"}');
INSERT INTO "steps" VALUES('second',4,'second-1-fc39',1764000023.0,'state','{"from": "running", "to": "no_change", "reason": "because"}');
INSERT INTO "steps" VALUES('stopped',1,NULL,1764000046.0,'state','{"from": null, "to": "queued", "reason": "submitted"}');
INSERT INTO "steps" VALUES('stopped',2,NULL,1764000048.0,'state','{"from": "queued", "to": "cancelled", "reason": "cancelled before it was claimed"}');
INSERT INTO "steps" VALUES('third',1,NULL,1764000025.0,'state','{"from": null, "to": "queued", "reason": "submitted"}');
INSERT INTO "steps" VALUES('third',2,'third-1-17eb',1764000028.0,'attempt','{"number": 1, "tier": "small", "strategy": "agent", "carries": null}');
INSERT INTO "steps" VALUES('third',3,NULL,1764000030.0,'state','{"from": "queued", "to": "running", "reason": "claimed"}');
INSERT INTO "steps" VALUES('third',4,'third-1-17eb',1764000033.0,'state','{"from": "running", "to": "gave_up", "reason": "because"}');
INSERT INTO "steps" VALUES('third',5,NULL,1764000036.0,'state','{"from": "gave_up", "to": "queued", "reason": "a person asked for another try"}');
INSERT INTO "steps" VALUES('third',6,'third-2-80d4',1764000039.0,'attempt','{"number": 2, "tier": "small", "strategy": "agent", "carries": null}');
INSERT INTO "steps" VALUES('third',7,NULL,1764000041.0,'state','{"from": "queued", "to": "running", "reason": "claimed"}');
INSERT INTO "steps" VALUES('third',8,'third-2-80d4',1764000044.0,'state','{"from": "running", "to": "checks_failed", "reason": "because"}');
INSERT INTO "steps" VALUES('waits',1,NULL,1764000078.0,'state','{"from": null, "to": "queued", "reason": "submitted"}');
INSERT INTO "steps" VALUES('waits-too',1,NULL,1764000080.0,'state','{"from": null, "to": "queued", "reason": "submitted"}');
CREATE TABLE tasks (
	id TEXT NOT NULL, 
	"key" TEXT, 
	request TEXT NOT NULL, 
	budget TEXT NOT NULL, 
	grants INTEGER NOT NULL, 
	created FLOAT NOT NULL, 
	state TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	updated FLOAT NOT NULL, 
	fence INTEGER NOT NULL, 
	tier TEXT NOT NULL, 
	strategy TEXT NOT NULL, 
	carry TEXT, 
	queued FLOAT NOT NULL, 
	not_before FLOAT NOT NULL, 
	cancelling BOOLEAN NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE ("key")
);
INSERT INTO "tasks" VALUES('done','k-1','{"repository":"demo","instructions":"mend done","base":null,"capability":"cap.secret-of-the-task","base_commit":"","test_command":null,"strategy":"auto","tier":null,"budget":null,"paths":[],"title":null,"idempotency_key":"k-1","task":"done","follows":null}','{"steps":60,"tokens":400000,"wall":1800.0,"attempts":2}',1,1764000001.0,'delivered','because',1764000012.0,2,'small','agent',NULL,1764000001.0,1764000001.0,0);
INSERT INTO "tasks" VALUES('second',NULL,'{"repository":"demo","instructions":"mend second","base":null,"capability":"","base_commit":"","test_command":null,"strategy":"auto","tier":null,"budget":null,"paths":[],"title":null,"idempotency_key":null,"task":"second","follows":"done"}','{"steps":60,"tokens":400000,"wall":1800.0,"attempts":2}',1,1764000014.0,'no_change','because',1764000022.0,2,'small','agent',NULL,1764000014.0,1764000014.0,0);
INSERT INTO "tasks" VALUES('third',NULL,'{"repository":"demo","instructions":"mend third","base":null,"capability":"","base_commit":"","test_command":null,"strategy":"auto","tier":null,"budget":null,"paths":[],"title":null,"idempotency_key":null,"task":"third","follows":"second"}','{"steps":60,"tokens":400000,"wall":1800.0,"attempts":2}',2,1764000024.0,'checks_failed','because',1764000043.0,5,'small','agent',NULL,1764000034.0,0.0,0);
INSERT INTO "tasks" VALUES('stopped',NULL,'{"repository":"demo","instructions":"mend stopped","base":null,"capability":"","base_commit":"","test_command":null,"strategy":"auto","tier":null,"budget":null,"paths":[],"title":null,"idempotency_key":null,"task":"stopped","follows":null}','{"steps":60,"tokens":400000,"wall":1800.0,"attempts":2}',1,1764000045.0,'cancelled','cancelled before it was claimed',1764000047.0,0,'small','agent',NULL,1764000045.0,1764000045.0,0);
INSERT INTO "tasks" VALUES('running',NULL,'{"repository":"other","instructions":"mend running","base":null,"capability":"","base_commit":"","test_command":null,"strategy":"auto","tier":null,"budget":null,"paths":[],"title":null,"idempotency_key":null,"task":"running","follows":null}','{"steps":60,"tokens":400000,"wall":1800.0,"attempts":2}',1,1764000049.0,'running','claimed',1764000054.0,1,'small','agent',NULL,1764000049.0,1764000049.0,0);
INSERT INTO "tasks" VALUES('delivering',NULL,'{"repository":"demo","instructions":"mend delivering","base":null,"capability":"","base_commit":"","test_command":null,"strategy":"auto","tier":null,"budget":null,"paths":[],"title":null,"idempotency_key":null,"task":"delivering","follows":null}','{"steps":60,"tokens":400000,"wall":1800.0,"attempts":2}',1,1764000060.0,'delivering','the checks passed',1764000067.0,1,'small','agent',NULL,1764000060.0,1764000060.0,0);
INSERT INTO "tasks" VALUES('dying',NULL,'{"repository":"demo","instructions":"mend dying","base":null,"capability":"","base_commit":"","test_command":null,"strategy":"auto","tier":null,"budget":null,"paths":[],"title":null,"idempotency_key":null,"task":"dying","follows":null}','{"steps":60,"tokens":400000,"wall":1800.0,"attempts":2}',1,1764000069.0,'running','claimed',1764000074.0,1,'small','agent',NULL,1764000069.0,1764000069.0,1);
INSERT INTO "tasks" VALUES('waits',NULL,'{"repository":"demo","instructions":"mend waits","base":null,"capability":"","base_commit":"","test_command":null,"strategy":"auto","tier":null,"budget":null,"paths":[],"title":null,"idempotency_key":null,"task":"waits","follows":null}','{"steps":60,"tokens":400000,"wall":1800.0,"attempts":2}',1,1764000077.0,'queued','',1764000077.0,0,'small','agent',NULL,1764000077.0,1764000077.0,0);
INSERT INTO "tasks" VALUES('waits-too',NULL,'{"repository":"demo","instructions":"mend waits-too","base":null,"capability":"","base_commit":"","test_command":null,"strategy":"auto","tier":null,"budget":null,"paths":[],"title":null,"idempotency_key":null,"task":"waits-too","follows":"done"}','{"steps":60,"tokens":400000,"wall":1800.0,"attempts":2}',1,1764000079.0,'queued','',1764000079.0,0,'small','agent',NULL,1764000079.0,1764000079.0,0);
CREATE INDEX tasks_by_state ON tasks (state, queued);
CREATE TRIGGER steps_no_update BEFORE update ON steps BEGIN SELECT RAISE(ABORT, 'the journal only grows'); END;
CREATE TRIGGER steps_no_delete BEFORE delete ON steps BEGIN SELECT RAISE(ABORT, 'the journal only grows'); END;
COMMIT;
PRAGMA user_version = 1;
