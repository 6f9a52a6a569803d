"""For the pages of the API: paragraphs of docstrings that tell one argument each, `name: what it is`, become items of a list."""

import re

import griffe


class Arguments(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring and obj.is_function:
            names = "|".join(p.name for p in obj.parameters)
            if names:
                obj.docstring.value = re.sub(
                    rf"(?m)^({names})((?:, (?:{names}))*): ", r"- `\1\2`: ", obj.docstring.value
                )
                obj.docstring.value = re.sub(r"(?m)(?<=\n)(- `)", r"\n\1", obj.docstring.value)
