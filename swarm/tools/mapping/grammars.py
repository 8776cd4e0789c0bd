"""Tree-sitter's grammars, and what definitions and mentions are in each, as data. Only the jailed reader loads them."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

QUERIES = {
    "python": """
        (class_definition name: (identifier) @name) @definition
        (function_definition name: (identifier) @name) @definition
        (module (expression_statement (assignment left: (identifier) @name)) @definition)
        (call function: [(identifier) @mention (attribute attribute: (identifier) @mention)])
        (argument_list (identifier) @mention)
        (class_definition superclasses: (argument_list (attribute attribute: (identifier) @mention)))
        (import_from_statement name: (dotted_name (identifier) @mention))
        (import_from_statement name: (aliased_import name: (dotted_name (identifier) @mention)))
        (type (identifier) @mention)
        (decorator (identifier) @mention)
    """,
    "javascript": """
        (class_declaration name: (identifier) @name) @definition
        (function_declaration name: (identifier) @name) @definition
        (generator_function_declaration name: (identifier) @name) @definition
        (method_definition name: (property_identifier) @name) @definition
        (variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)]) @definition
        (call_expression function: [(identifier) @mention (member_expression property: (property_identifier) @mention)])
        (new_expression constructor: (identifier) @mention)
        (class_heritage (identifier) @mention)
        (import_specifier name: (identifier) @mention)
    """,
    "go": """
        (function_declaration name: (identifier) @name) @definition
        (method_declaration name: (field_identifier) @name) @definition
        (type_spec name: (type_identifier) @name) @definition
        (call_expression function: [(identifier) @mention (selector_expression field: (field_identifier) @mention)])
        (type_identifier) @mention
    """,
    "rust": """
        (struct_item name: (type_identifier) @name) @definition
        (enum_item name: (type_identifier) @name) @definition
        (union_item name: (type_identifier) @name) @definition
        (type_item name: (type_identifier) @name) @definition
        (trait_item name: (type_identifier) @name) @definition
        (impl_item type: (type_identifier) @name) @definition
        (mod_item name: (identifier) @name) @definition
        (function_item name: (identifier) @name) @definition
        (function_signature_item name: (identifier) @name) @definition
        (macro_definition name: (identifier) @name) @definition
        (call_expression function: [(identifier) @mention (field_expression field: (field_identifier) @mention)
          (scoped_identifier name: (identifier) @mention)])
        (macro_invocation macro: (identifier) @mention)
        (type_identifier) @mention
    """,
    "java": """
        (class_declaration name: (identifier) @name) @definition
        (interface_declaration name: (identifier) @name) @definition
        (enum_declaration name: (identifier) @name) @definition
        (record_declaration name: (identifier) @name) @definition
        (method_declaration name: (identifier) @name) @definition
        (constructor_declaration name: (identifier) @name) @definition
        (method_invocation name: (identifier) @mention)
        (object_creation_expression type: (type_identifier) @mention)
        (type_identifier) @mention
    """,
    "c": """
        (struct_specifier name: (type_identifier) @name body: (_)) @definition
        (union_specifier name: (type_identifier) @name body: (_)) @definition
        (enum_specifier name: (type_identifier) @name body: (_)) @definition
        (type_definition declarator: (type_identifier) @name) @definition
        (function_definition declarator: (function_declarator declarator: (identifier) @name)) @definition
        (function_definition declarator: (pointer_declarator
          declarator: (function_declarator declarator: (identifier) @name))) @definition
        (preproc_function_def name: (identifier) @name) @definition
        (call_expression function: (identifier) @mention)
        (call_expression function: (field_expression field: (field_identifier) @mention))
        (type_identifier) @mention
    """,
    "ruby": """
        (class name: [(constant) (scope_resolution)] @name) @definition
        (module name: [(constant) (scope_resolution)] @name) @definition
        (method name: (_) @name) @definition
        (singleton_method name: (_) @name) @definition
        (call method: (identifier) @mention)
        (constant) @mention
    """,
    "php": """
        (class_declaration name: (name) @name) @definition
        (interface_declaration name: (name) @name) @definition
        (trait_declaration name: (name) @name) @definition
        (enum_declaration name: (name) @name) @definition
        (function_definition name: (name) @name) @definition
        (method_declaration name: (name) @name) @definition
        (function_call_expression function: (name) @mention)
        (member_call_expression name: (name) @mention)
        (scoped_call_expression name: (name) @mention)
        (object_creation_expression (name) @mention)
        (named_type (name) @mention)
    """,
    "c_sharp": """
        (class_declaration name: (identifier) @name) @definition
        (interface_declaration name: (identifier) @name) @definition
        (struct_declaration name: (identifier) @name) @definition
        (enum_declaration name: (identifier) @name) @definition
        (record_declaration name: (identifier) @name) @definition
        (method_declaration name: (identifier) @name) @definition
        (constructor_declaration name: (identifier) @name) @definition
        (property_declaration name: (identifier) @name) @definition
        (invocation_expression function: [(identifier) @mention
          (member_access_expression name: (identifier) @mention)])
        (object_creation_expression type: (identifier) @mention)
        (base_list (identifier) @mention)
    """,
}
QUERIES["typescript"] = """
    (class_declaration name: (type_identifier) @name) @definition
    (abstract_class_declaration name: (type_identifier) @name) @definition
    (interface_declaration name: (type_identifier) @name) @definition
    (type_alias_declaration name: (type_identifier) @name) @definition
    (enum_declaration name: (identifier) @name) @definition
    (function_declaration name: (identifier) @name) @definition
    (generator_function_declaration name: (identifier) @name) @definition
    (function_signature name: (identifier) @name) @definition
    (method_definition name: (property_identifier) @name) @definition
    (method_signature name: (property_identifier) @name) @definition
    (abstract_method_signature name: (property_identifier) @name) @definition
    (variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)]) @definition
    (call_expression function: [(identifier) @mention (member_expression property: (property_identifier) @mention)])
    (new_expression constructor: (identifier) @mention)
    (import_specifier name: (identifier) @mention)
    (type_identifier) @mention
"""
QUERIES["tsx"] = QUERIES["typescript"]
QUERIES["cpp"] = (
    QUERIES["c"]
    + """
    (class_specifier name: (type_identifier) @name body: (_)) @definition
    (namespace_definition name: (namespace_identifier) @name) @definition
    (function_definition declarator: (function_declarator declarator: (field_identifier) @name)) @definition
    (function_definition declarator: (function_declarator
      declarator: (qualified_identifier name: (identifier) @name))) @definition
    (call_expression function: (qualified_identifier name: (identifier) @mention))
"""
)
_MATCHES = 10_000  # states of a query that are under way at a time
_PACKAGES = {
    "typescript": ("tree_sitter_typescript", "language_typescript"), "tsx": ("tree_sitter_typescript", "language_tsx"),
    "php": ("tree_sitter_php", "language_php"),
}  # fmt: skip


class Grammar:
    """One language's parser, and what is looked for in its trees. Raises ImportError where it is not installed, and
    ValueError for a grammar too new or too old for the library."""

    def __init__(self, name: str) -> None:
        package, function = _PACKAGES.get(name, (f"tree_sitter_{name}", "language"))
        library = importlib.import_module("tree_sitter")
        language = library.Language(getattr(importlib.import_module(package), function)())
        self._parser, self._query = library.Parser(language), library.Query(language, QUERIES[name])
        self._cursor = library.QueryCursor

    def captures(self, data: bytes) -> Iterator[dict[str, list[Any]]]:
        """What each match of the query captured: ``mention`` nodes, or a ``definition`` and its ``name``."""
        cursor = self._cursor(self._query, match_limit=_MATCHES)
        for _, found in cursor.matches(self._parser.parse(data).root_node):
            yield found


def load(name: str) -> Grammar | None:
    """A language's grammar; None where it has none here or its package is not installed."""
    if name not in QUERIES:
        return None
    with contextlib.suppress(ImportError, AttributeError, ValueError):
        return Grammar(name)
    return None
