"""Names that a mapping of a YAML file has twice: a reader of YAML takes the last value and drops the rest."""

from collections.abc import Iterator

import yaml


def duplicates(tree: yaml.Node | None) -> Iterator[tuple[int, str]]:
    """Each second name below `tree`, with its line."""
    seen: set[int] = set()  # an alias may lead back to its own mapping
    nodes = [] if tree is None else [tree]
    while nodes:
        node = nodes.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes += node.value
        elif isinstance(node, yaml.MappingNode):
            names: set[str] = set()
            for name, value in node.value:
                nodes.append(value)
                if not isinstance(name, yaml.ScalarNode):
                    continue
                if name.value in names:
                    yield name.start_mark.line + 1, name.value
                names.add(name.value)
