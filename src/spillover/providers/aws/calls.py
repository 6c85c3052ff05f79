"""Calls of EC2 in threads, bounded in number and time.

boto3 blocks, and is imported at the first call: it takes most of a second. It tries each call once, because it cannot
know which tries are safe and which of them another offer should get instead.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final

from msgspec import Struct

from spillover.model.bounds import plain
from spillover.ports.provider import ProviderOpening
from spillover.providers.aws.answers import FAILURES, Failure, NoAccess, NoAnswer, NotSent, Said
from spillover.providers.aws.credentials import KEYS, files, lacking, profile_of, region_of
from spillover.providers.aws.options import AwsForm

PAGE: Final = 500
"""Machines in an answer."""
MOST_PAGES: Final = 1000
ACTIONS: Final = frozenset(
    (
        "DescribeAvailabilityZones",
        "DescribeImages",
        "DescribeInstanceTypeOfferings",
        "DescribeInstanceTypes",
        "DescribeInstances",
        "DescribeKeyPairs",
        "DescribeLaunchTemplateVersions",
        "DescribeSecurityGroups",
        "DescribeSpotPriceHistory",
        "DescribeSubnets",
        "RunInstances",
        "TerminateInstances",
    )
)
"""All calls of EC2 that the provider makes."""


class Limits(Struct, frozen=True):
    """Bounds of calls."""

    threads: int = 8
    """Calls at a time. More wait for a thread."""
    connect: float = 5.0
    """Seconds to connect."""
    read: float = 30.0
    """Seconds without a byte of the answer."""
    whole: float = 60.0
    """Seconds for a call, with the wait for a thread."""


class Calls:
    """The API of EC2 in one region."""

    def __init__(self, form: AwsForm, opening: ProviderOpening, limits: Limits | None = None) -> None:
        self._form = form
        self._opening = opening
        self._limits = limits or Limits()
        self.region: Final = region_of(form.region, opening.environ)
        self._slots = asyncio.Semaphore(self._limits.threads)
        self._client: Any = None
        self._making = threading.Lock()
        self._closed = False

    async def call(self, operation: str, **asked: Any) -> dict[str, Any]:
        """Return the answer to a call; raise one of `answers.FAILURES`."""
        if self._closed:
            raise NotSent("the provider is closed")
        sent = False
        try:
            async with asyncio.timeout(self._limits.whole):
                await self._slots.acquire()
                sent = True
                return await self._started(operation, asked)
        except TimeoutError:
            if not sent:
                raise NotSent(f"all {self._limits.threads} connections to EC2 are busy") from None
            raise NoAnswer(f"EC2 did not answer {operation} in {self._limits.whole:g} s") from None

    def _started(self, operation: str, asked: Mapping[str, Any]) -> asyncio.Future[dict[str, Any]]:
        """Start a call in a thread of its own, which keeps its slot as long as it takes, whoever still waits for it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[dict[str, Any]] = loop.create_future()

        def ended(answer: dict[str, Any] | None, failure: Failure | None) -> None:
            self._slots.release()
            if not future.done():
                future.set_exception(failure) if failure is not None else future.set_result(answer or {})

        def work() -> None:
            answer, failure = None, None
            try:
                answer = self._do(operation, asked)
            except FAILURES as error:
                failure = error
            with suppress(RuntimeError):  # the loop was closed, and nobody waits
                loop.call_soon_threadsafe(ended, answer, failure)

        # A thread of a pool would keep the process from ending until EC2 answers.
        threading.Thread(target=work, name=f"aws-{operation}", daemon=True).start()
        return future

    async def pages(self, operation: str, key: str, **asked: Any) -> AsyncIterator[list[dict[str, Any]]]:
        """Iterate over the answers to a question that has many, each the list under `key`."""
        token: str | None = None
        for _ in range(MOST_PAGES):
            answer = await self.call(operation, **asked, **({"NextToken": token} if token else {}))
            yield answer.get(key) or []
            if not (token := answer.get("NextToken")):
                return
        raise NoAnswer(f"EC2 answered {operation} with more than {MOST_PAGES} pages")

    async def close(self) -> None:
        """Stop. What was sent goes on, and its answer is lost."""
        self._closed = True
        if self._client is not None:
            self._client.close()

    def _do(self, operation: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Send one request, in a thread."""
        try:
            with self._making:
                if self._client is None:
                    self._client = self._made()
            answer: dict[str, Any] = getattr(self._client, operation)(**asked)
        except ImportError as error:
            raise NoAccess(f"{error}; run: pip install 'spillover[aws]'") from None
        except Exception as error:  # noqa: BLE001 - whatever an answer makes of the library, it is no answer
            raise self._failure(error) from None
        return answer

    def _made(self) -> Any:
        """Create the client."""
        import boto3.session  # noqa: PLC0415 - heavy, and an optional dependency
        from botocore.config import Config  # noqa: PLC0415 - likewise
        from botocore.session import Session  # noqa: PLC0415 - likewise

        form, environ, limits = self._form, self._opening.environ, self._limits
        core = Session(profile=form.profile)
        core.register_component("data_loader", _loader())
        config, credentials = files(environ, self._opening.home)
        core.set_config_variable("config_file", str(config))
        core.set_config_variable("credentials_file", str(credentials))
        if form.profile is None and (named := profile_of(None, environ)):
            core.set_config_variable("profile", named)
        keys: dict[str, str] = {}
        if form.profile is None and all(environ.get(name) for name in KEYS):
            keys = {
                "aws_access_key_id": environ[KEYS[0]],
                "aws_secret_access_key": environ[KEYS[1]],
                "aws_session_token": environ.get("AWS_SESSION_TOKEN", ""),
            }
        return boto3.session.Session(botocore_session=core).client(
            "ec2",
            region_name=self.region or None,
            endpoint_url=form.endpoint,
            config=Config(
                retries={"total_max_attempts": 1, "mode": "standard"},
                connect_timeout=limits.connect,
                read_timeout=limits.read,
                max_pool_connections=limits.threads,
                user_agent_extra="spillover",
            ),
            **{name: value for name, value in keys.items() if value},
        )

    def _failure(self, error: Exception) -> Failure:
        """Return what an error of the library tells of the request."""
        from botocore import exceptions  # noqa: PLC0415 - an optional dependency

        if isinstance(error, exceptions.ClientError):
            return Said.read(error.response)
        line = plain(" ".join(f"{type(error).__name__}: {error}".split())[:400])
        if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
            why = lacking(self._form.profile, self._opening.environ, self._opening.home)
            return NoAccess(why or f"there are no credentials for AWS that can be used ({line})")
        if isinstance(
            error,
            exceptions.ProfileNotFound
            | exceptions.ConfigParseError
            | exceptions.SSOError
            | exceptions.LoginError
            | exceptions.TokenRetrievalError
            | exceptions.NoAuthTokenError
            | exceptions.InvalidConfigError,
        ):
            return NoAccess(f"the credentials for AWS cannot be used: {line}")
        if isinstance(error, exceptions.ParamValidationError):
            return Said("ParamValidation", line)
        if isinstance(
            error, exceptions.NoRegionError | exceptions.InvalidRegionError | exceptions.EndpointProviderError
        ):
            return Said("InvalidRegion", line)
        unsent = (
            exceptions.EndpointConnectionError
            | exceptions.ConnectTimeoutError
            | exceptions.ProxyConnectionError
            | exceptions.CredentialRetrievalError
            | exceptions.MetadataRetrievalError
        )
        if isinstance(error, unsent) or "CERTIFICATE_VERIFY_FAILED" in line:
            return NotSent(f"EC2 cannot be reached: {line}")
        return NoAnswer(f"EC2 did not answer: {line}")


@cache
def _loader() -> Any:
    """Return what boto3 knows of the calls above, which all pools share. Of all of EC2 it would be many megabytes."""
    from botocore.loaders import create_loader  # noqa: PLC0415 - an optional dependency

    loader = create_loader()
    load = loader.load_service_model

    def load_few(service: str, kind: str, api_version: str | None = None) -> Any:
        model = load(service, kind, api_version=api_version)
        if service == "ec2" and "operations" in model:
            _prune(model)
        return model

    loader.load_service_model = load_few
    return loader


def _prune(model: dict[str, Any]) -> None:
    """Forget all calls of a service but ours, and the forms that only those have."""
    calls, forms = model["operations"], model["shapes"]
    for name in [each for each in calls if each not in ACTIONS]:
        del calls[name]
    kept: set[str] = set()
    names = _named(calls)
    while names:
        kept |= names
        names = _named([forms[each] for each in names]) - kept
    for name in [each for each in forms if each not in kept]:
        del forms[name]


def _named(value: Any) -> set[str]:
    """Return the forms that a part of a service model names."""
    if isinstance(value, dict):
        own = {value["shape"]} if isinstance(value.get("shape"), str) else set()
        return own.union(*map(_named, value.values()))
    return set().union(*map(_named, value)) if isinstance(value, list) else set()
