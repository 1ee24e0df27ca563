"""A griffe extension for mkdocs.yml: the section `Example:` of a docstring holds code."""

import re

from griffe import Extension


class Examples(Extension):
    """Calls the section by the only name that griffe reads as code."""

    def on_instance(self, *, obj, **_):
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", obj.docstring.value)
