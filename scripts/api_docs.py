"""`python -m scripts.api_docs`: writes the signatures and docstrings of public names into docs/api.md.

A block of the page begins with `<!-- MODULE -->` and ends with `<!-- end -->`. Functions become text, classes a table.
"""

import inspect
import re
from types import ModuleType

import inference_recommender.client
import model_build
from workloads import ROOT

PAGE = ROOT / "docs" / "api.md"
MODULES = {each.__name__: each for each in (model_build, inference_recommender, inference_recommender.client)}
BLOCK = re.compile(r"(<!-- (?!end)([\w.]+) -->\n).*?(?=<!-- end -->)", re.DOTALL)


def described(page: str) -> str:
    """Returns the page with the docstrings that the code has now."""
    return BLOCK.sub(lambda block: block[1] + _names(MODULES[block[2]]), page)


def _names(module: ModuleType) -> str:
    public = {name: getattr(module, name) for name in module.__all__}
    texts, rows = list[str](), list[str]()
    for name, value in public.items():
        text = " ".join((inspect.getdoc(value) or "").split())
        if inspect.isclass(value):
            rows.append(f"| `{name}{_arguments(value)}` | {text} |\n")
        else:
            texts.append(f"### `{module.__name__}.{name}{_arguments(value)}`\n\n{text}\n\n")
    return "".join(texts) + "".join(["| name | purpose |\n|---|---|\n", *rows] if rows else [])


def _arguments(value: object) -> str:
    """Returns the names of the arguments; those after `*` are passed by name."""
    if not callable(value) or (inspect.isclass(value) and issubclass(value, Exception)):
        return ""
    signature, none = inspect.signature(value), inspect.Parameter.empty
    names = [each.replace(annotation=none, default=none) for each in signature.parameters.values()]
    return str(signature.replace(parameters=names, return_annotation=none))


if __name__ == "__main__":
    PAGE.write_text(described(PAGE.read_text("utf-8")), "utf-8")
