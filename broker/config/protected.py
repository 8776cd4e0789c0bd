"""The files that no proposal changes, and those that a reviewer is told of, unless broker.toml says otherwise."""

from __future__ import annotations

WORKFLOW_PATHS = (
    # what the forge or a CI service runs with the repository's own rights
    ".github/workflows", ".github/actions", "action.yml", "action.yaml", ".gitlab", "*.gitlab-ci.yml",
    "*.gitlab-ci.yaml", ".gitea/workflows", ".forgejo/workflows", ".circleci", ".buildkite", ".azure-pipelines",
    "azure-pipelines*.yml", ".travis.yml", ".drone.yml", ".drone.star", ".woodpecker", ".woodpecker.yml",
    ".woodpecker.yaml", ".cirrus.yml", ".cirrus.star", "Jenkinsfile*", "bitbucket-pipelines.yml", "appveyor.yml",
    ".appveyor.yml", ".semaphore", ".teamcity", ".build.yml", ".builds",
)  # fmt: skip

PROTECTED_PATHS = (
    # what a forge or a CI service obeys
    ".github", ".gitlab", "*.gitlab-ci.yml", ".gitea", ".forgejo", ".circleci", ".buildkite", ".azure-pipelines",
    "azure-pipelines.yml", ".travis.yml", ".drone.yml", ".woodpecker", ".woodpecker.yml", ".cirrus.yml", "Jenkinsfile",
    "bitbucket-pipelines.yml", "appveyor.yml", "CODEOWNERS", "renovate.json", "renovate.json5", "dependabot.yml",
    # what git itself obeys
    ".gitmodules", ".gitattributes", ".gitignore", ".gitconfig", ".mailmap", ".lfsconfig",
    # what the next agent obeys
    "AGENTS.md", "AGENT.md", "AGENTS.override.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md", "QWEN.md",
    "copilot-instructions.md", "*.instructions.md", ".cursorrules", ".windsurfrules", ".clinerules",
    ".aider*", ".mcp.json", ".claude", ".codex", ".cursor", ".agents", ".gemini",
    # hooks and other folders that tools run from: every folder at the top whose name starts with a dot
    ".husky", ".githooks", ".pre-commit-config.yaml", ".pre-commit-hooks.yaml", "lefthook.yml", ".envrc", ".*/*",
    # what decides which foreign code is installed
    "package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", ".yarnrc*", "pnpm-lock.yaml",
    "pnpm-workspace.yaml", ".pnpmfile.cjs", "bun.lock", "bun.lockb", "bunfig.toml", ".npmrc", "deno.json", "deno.lock",
    "pyproject.toml", "setup.py", "setup.cfg", "requirements*.txt", "requirements*.in", "constraints*.txt", "Pipfile",
    "Pipfile.lock", "poetry.lock", "pdm.lock", "uv.lock", "uv.toml", "pylock*.toml", "environment*.yml", "pip.conf",
    "go.mod", "go.sum", "go.work", "go.work.sum", "Cargo.toml", "Cargo.lock", "build.rs", "rust-toolchain*",
    "Gemfile", "Gemfile.lock", "*.gemspec", "composer.json", "composer.lock", "pom.xml", "build.gradle*",
    "settings.gradle*", "gradle.properties", "gradle.lockfile", "gradle-wrapper.*", "libs.versions.toml",
    "maven-wrapper.properties", "nuget.config", "packages.config", "packages.lock.json", "Directory.Packages.props",
    "Directory.Build.*", "global.json", "mix.exs", "mix.lock", "pubspec.yaml", "pubspec.lock", "Package.swift",
    "Package.resolved", "Podfile", "Podfile.lock", "flake.nix", "flake.lock", "SECURITY.md",
)  # fmt: skip

WATCHED_PATHS = (
    # what people read first and act on, and what runs on their machines when they build
    "README*", "CONTRIBUTING*", "CODE_OF_CONDUCT*", "LICEN[CS]E*", "COPYING*", "Dockerfile*", "Containerfile*",
    "docker-compose*.yml", "compose.yaml", "Makefile", "GNUmakefile", "CMakeLists.txt", "conftest.py", "tox.ini",
    "noxfile.py",
)  # fmt: skip
