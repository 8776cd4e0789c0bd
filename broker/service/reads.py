"""What the coordinator reads without the key."""

from __future__ import annotations

from typing import IO

from broker.service.grants import Grants
from broker.service.ward import Desk
from broker.wire import MirrorRequest, Repositories, RepositoryInfo


class Reads:
    """Mirrors, and which repositories there are."""

    def __init__(self, desk: Desk, grants: Grants) -> None:
        self._desk = desk
        self._grants = grants

    def mirror(self, request: MirrorRequest) -> tuple[str, IO[bytes]]:
        """The granted base commit and a file with its pack; the caller closes it."""
        rights = self._grants.rights(request.capability, "mirror")
        pack = self._desk.wards.get(rights.repository).mirror.pack(rights.base_commit, request.have)
        self._desk.audit.append("mirror", grant=rights.grant, repository=rights.repository, commit=rights.base_commit)
        return rights.base_commit, pack

    def repositories(self) -> Repositories:
        """Names alone; no address."""
        known = self._desk.current().repositories
        infos = (
            RepositoryInfo(name=ward.name, forge=known[ward.name].forge, default_base=known[ward.name].default_base)
            for ward in self._desk.wards.all()
            if ward.name in known
        )
        return Repositories(repositories=tuple(infos))
