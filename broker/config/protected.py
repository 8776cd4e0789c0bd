"""The files that no proposal changes unless broker.toml says otherwise."""

from __future__ import annotations

PROTECTED_PATHS = (
    # what a forge or a CI system executes or obeys
    ".github", ".gitlab", ".gitlab-ci.yml", ".gitea", ".forgejo", ".circleci", ".buildkite", ".azure-pipelines",
    "azure-pipelines.yml", ".travis.yml", ".drone.yml", ".woodpecker", ".woodpecker.yml", ".cirrus.yml", "Jenkinsfile",
    "bitbucket-pipelines.yml", "appveyor.yml", "CODEOWNERS",
    # what git itself obeys
    ".gitmodules", ".gitattributes", ".gitignore", ".gitconfig", ".mailmap", ".lfsconfig",
    # what the next agent obeys
    "AGENTS.md", "CLAUDE.md", "GEMINI.md", "QWEN.md", "copilot-instructions.md", ".cursorrules", ".windsurfrules",
    ".aider.conf.yml", ".mcp.json",
    # hooks and other folders that tools run from: every folder at the top whose name starts with a dot
    ".husky", ".githooks", ".pre-commit-config.yaml", ".*/*",
    # what decides which foreign code is installed
    "package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", ".npmrc",
    "pyproject.toml", "setup.py", "setup.cfg", "requirements*.txt", "Pipfile", "Pipfile.lock", "poetry.lock", "uv.lock",
    "go.mod", "go.sum", "Cargo.toml", "Cargo.lock", "Gemfile", "Gemfile.lock", "composer.json", "composer.lock",
    "pom.xml", "build.gradle", "build.gradle.kts", "gradle-wrapper.properties", "SECURITY.md",
)  # fmt: skip
