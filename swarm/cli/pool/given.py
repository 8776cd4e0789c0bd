"""The model servers that a command is given: on its command line, by the settings, and the embedded one beside them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated

import typer
from platformdirs import user_log_path
from pydantic import SecretStr, ValidationError

from pool.config import AUTO, EndpointConfig, PoolConfig
from pool.embedded import serve_embedded
from pool.errors import PoolError
from swarm.config import Settings, missing_keys
from swarm.config_text import problems
from swarm.errors import ConfigError

OPTIONS = {  # of a server that is named by its address
    "set api_key of this endpoint to": "name with --key-env the variable that holds",
    "mend model of this endpoint": "name one of these with --model",
    "mend url (or api_key) of this endpoint": "mend the URL (or --key-env)",
    "set url of this endpoint to": "give as URL",
    "mend url of this endpoint": "mend the URL",
    "mend url or api_key": "mend the URL, or --key-env",
}
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key-env", help="Name of the environment variable that holds its key.", show_default=False, metavar="VARIABLE"
    ),
]


def server(told: Mapping[str, object], key_env: str | None = None) -> EndpointConfig:
    """The endpoint with these settings. Raises ConfigError for a setting that cannot be, or a variable that is not set.

    The key is read here, once; it goes into no message.
    """
    try:
        endpoint = EndpointConfig.model_validate(told)
    except ValidationError as error:
        found = problems(error, EndpointConfig, "")
        mend = "give the server's base address, like http://127.0.0.1:8000"
        if any(problem.key != "url" for problem in found):
            mend = "correct what is named; each setting: swarm config explain pool.endpoints"
        raise ConfigError("; ".join(map(str, found)), mend) from None
    if endpoint.tier == AUTO:
        raise ConfigError(f'the tier "{AUTO}" is the one that a policy chooses', "give this server's tier another name")
    return endpoint if key_env is None else endpoint.model_copy(update={"api_key": _key(key_env)})


def configured(settings: Settings) -> PoolConfig:
    """The pool of the settings, for whoever asks its servers. Raises ConfigError where a key is missing."""
    if missing := missing_keys(settings):
        listed = "\n".join(f"  {problem}" for problem in missing)
        raise ConfigError(f"keys are missing\n{listed}", "set these variables where this command is started")
    return settings.pool


@asynccontextmanager
async def with_embedded(config: PoolConfig) -> AsyncIterator[PoolConfig]:
    """The pool with the embedded model among its endpoints, where it is enabled; served while the block runs."""
    if not config.embedded.enabled:
        yield config
        return
    log = user_log_path("agent-swarm") / "embedded.log"
    async with serve_embedded(config.embedded, log=log, environ=os.environ) as own:
        yield config.model_copy(update={"endpoints": (*config.endpoints, own)})


def no_key_without(address: str, key_env: str | None) -> None:
    """Raises ConfigError for a key whose server is not named beside it: those of a swarm.toml have theirs there."""
    if key_env is not None:
        raise ConfigError(f"--key-env is the key of {address}, which is missing", "servers of swarm.toml: api_key_env")


def for_urls(text: str) -> str:
    """Words about an endpoint's settings as they are meant where it was given on the command line."""
    for setting, option in OPTIONS.items():
        text = text.replace(setting, option)
    return text


@contextmanager
def told_for_urls() -> Iterator[None]:
    """Errors out of the block name options in place of settings. Raises what the block raises."""
    try:
        yield
    except PoolError as error:
        error.args = (for_urls(str(error)), *error.args[1:])
        raise


def _key(variable: str) -> SecretStr:
    value = os.environ.get(variable)
    if not value:
        raise ConfigError(
            f"the environment variable {variable} is not set, or empty", "export it, or leave out --key-env"
        )
    return SecretStr(value)
