"""Broken machinery of the sandbox room. What a command does is an Outcome, never an exception.

SandboxError
├── SandboxUnavailableError   no backend can keep the claims asked for; the message says why and what to do
├── SandboxPathError          a path outside the workspace, nothing there, or no room for it
├── SandboxLostError          the sandbox went away under us (engine restart, killed from outside)
├── WorkspaceError            the checkout or the sealing of a tree failed
├── ImageError                an image that cannot be had, or one that may not be used
└── SetUpError                a repository's set-up commands failed
"""


class SandboxError(Exception):
    """Base of all errors of this room."""


class SandboxUnavailableError(SandboxError):
    """No backend can keep the claims asked for."""


class SandboxPathError(SandboxError):
    """A path outside the workspace, nothing there, or no room for it: words for the agent, the sandbox is fine."""


class SandboxLostError(SandboxError):
    """The sandbox went away under us."""


class WorkspaceError(SandboxError):
    """The checkout or the sealing of a tree failed."""


class ImageError(SandboxError):
    """An image that cannot be read, built or found, or that a repository may not choose."""


class SetUpError(SandboxError):
    """A repository's set-up commands failed; the message names the command, how it ended and what it said last."""
