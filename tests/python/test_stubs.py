"""The stubs against the module: the same names, parameters, kinds and defaults, the same members."""

import ast
import importlib
import inspect
from pathlib import Path

import enigma
import pytest

PACKAGE = Path(enigma.__file__).parent
MODULES = ["enigma", "enigma.testing"]
# Python gives these to any class, or the stubs need them for typing only.
IMPLIED = {"__init__", "__new__", "__match_args__", "__dataclass_fields__"}


def stub_tree(module):
    name = "__init__.pyi" if module == "enigma" else module.split(".")[1] + ".pyi"
    return ast.parse((PACKAGE / name).read_text())


def stub_definitions(body):
    """name -> list of nodes, for functions (overloads have several) and classes."""
    found = {}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.setdefault(node.name, []).append(node)
    return found


def is_property(node):
    return any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list)


def stub_parameters(node):
    """(name, kind, default) of a def, as inspect gives them."""
    a = node.args
    kinds = inspect.Parameter
    positional = a.posonlyargs + a.args
    defaults = [None] * (len(positional) - len(a.defaults)) + a.defaults
    out = []
    for i, (arg, default) in enumerate(zip(positional, defaults, strict=True)):
        kind = kinds.POSITIONAL_ONLY if i < len(a.posonlyargs) else kinds.POSITIONAL_OR_KEYWORD
        out.append((arg.arg, kind, literal(default)))
    if a.vararg:
        out.append((a.vararg.arg, kinds.VAR_POSITIONAL, kinds.empty))
    out += [(arg.arg, kinds.KEYWORD_ONLY, literal(d)) for arg, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)]
    if a.kwarg:
        out.append((a.kwarg.arg, kinds.VAR_KEYWORD, kinds.empty))
    return out


def literal(node):
    return inspect.Parameter.empty if node is None else ast.literal_eval(node)


def real_parameters(function):
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def all_pairs():
    """(id, stub node, real object, is a method) for every function, and for the constructor of every class."""
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name, nodes in stub_definitions(stub_tree(module_name).body).items():
            real = getattr(module, name)
            for node in nodes:
                if isinstance(node, ast.FunctionDef):
                    yield f"{name}", node, real, False
                    continue
                for member, defs in stub_definitions(node.body).items():
                    for one in defs:
                        if member in ("__init__", "__new__"):
                            yield f"{name}()", one, real, True
                        elif not is_property(one) and not member.startswith("__"):
                            yield f"{name}.{member}", one, getattr(real, member), True


@pytest.mark.parametrize("node, real, is_method", [pytest.param(*pair[1:], id=pair[0]) for pair in all_pairs()])
def test_parameters(node, real, is_method):
    stub = stub_parameters(node)
    actual = real_parameters(real)
    if is_method:
        stub = stub[1:]
        actual = actual if inspect.isclass(real) else actual[1:]
    assert stub == actual


@pytest.mark.parametrize("module_name", MODULES)
def test_names(module_name):
    module = importlib.import_module(module_name)
    assert set(stub_definitions(stub_tree(module_name).body)) | {"__version__"} == set(module.__all__) | {"__version__"}


def members(cls):
    """What a class itself shows: public names, and the special methods that the stubs name."""
    return {name for name in vars(cls) if not name.startswith("_")}


@pytest.mark.parametrize("module_name", MODULES)
def test_members(module_name):
    module = importlib.import_module(module_name)
    for name, nodes in stub_definitions(stub_tree(module_name).body).items():
        real = getattr(module, name)
        if not isinstance(nodes[0], ast.ClassDef):
            continue
        stub = set(stub_definitions(nodes[0].body))
        assert {m for m in stub if not m.startswith("_")} == members(real), name
        for special in {m for m in stub if m.startswith("_")} - IMPLIED:
            assert hasattr(real, special), f"{name}.{special}"
        for member, defs in stub_definitions(nodes[0].body).items():
            if is_property(defs[0]):
                assert inspect.isdatadescriptor(inspect.getattr_static(real, member)), f"{name}.{member}"


def test_typed_marker():
    assert (PACKAGE / "py.typed").is_file()
