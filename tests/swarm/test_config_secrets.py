"""What the settings keep secret is known wherever it stands, and what nobody here has is told."""

from __future__ import annotations

from typing import Any

from swarm.config import Settings, secrets_known, secrets_missing

ENDPOINT: dict[str, Any] = {"name": "e", "url": "http://127.0.0.1:1", "tier": "small", "model": "m"}
NAMED = {
    "daemon": {"database": "postgresql://u@h/d", "database_password_env": "DB"},
    "pool": {"endpoints": [ENDPOINT | {"api_key_env": "KEY"}, ENDPOINT | {"name": "f", "api_key": "plainly-there"}]},
    "telemetry": {"otlp_headers_env": "OTLP"},
    "sandbox": {"egress": {"model": {"api_key_env": "EGRESS"}}},
}
THERE = {
    "DB": "db-password-9876",
    "KEY": "the-models-api-key",
    "OTLP": "authorization=Bearer%20otlp-secret,x-team=crew-of-a",
    "EGRESS": "key-of-the-gateway",
    "OTHER": "none of ours",
}


def test_every_secret_that_the_settings_name_is_known_where_it_is_to_be_had() -> None:
    known = secrets_known(Settings.model_validate(NAMED), THERE)
    values = {value for name, value in THERE.items() if name != "OTHER"}
    assert known == values | {"plainly-there", "Bearer otlp-secret", "crew-of-a"}


def test_what_is_not_to_be_had_is_told_by_its_setting_and_its_variable() -> None:
    settings = Settings.model_validate(NAMED)
    assert secrets_missing(settings, THERE) == ()
    assert set(secrets_missing(settings, {})) == {
        "daemon.database_password_env (DB)",
        "pool.endpoints[0].api_key_env (KEY)",
        "telemetry.otlp_headers_env (OTLP)",
        "sandbox.egress.model.api_key_env (EGRESS)",
    }
    file = Settings.model_validate({"daemon": {"database_password_file": "/etc/none"}})
    assert secrets_missing(file, {}) == ("daemon.database_password_file (/etc/none)",)
