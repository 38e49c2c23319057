"""The architecture: data flows one way, and third parties stay in their rooms."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "uqeval"
# A module imports only from those before it (or from its own folder).
LAYERS = [
    "_version",
    "_errors",
    "_files",
    "_check",
    "inputs",
    "truth",
    "scores",
    "kernels",
    "_result",
    "metrics",
    "inference",
    "decide",
    "evaluation",
    "distributed",
    "datasets",
    "methods",
    "plot",
    "pages",
    "reproduce",
    "cli",
]
ANYWHERE = {"numpy", "uqeval"} | set(sys.stdlib_module_names)
ALLOWED = {
    "scipy": {"_result", "scores", "metrics", "inference", "decide", "evaluation", "methods"},
    "narwhals": {"inputs", "distributed"},
    "pyarrow": {"inputs", "_result", "distributed", "datasets"},
    "pandas": {"_result", "distributed"},  # to_frame
    "polars": {"_result", "distributed"},
    "altair": {"plot", "reproduce"},
    "vl_convert": {"pages", "plot", "reproduce"},
    "jinja2": {"pages"},
    "typer": {"cli"},
    "rich": {"cli", "methods"},
    "torch": {"methods", "reproduce"},
    "pooch": {"datasets"},
    "PIL": {"datasets", "reproduce"},
    "torchvision": {"reproduce"},
    "timm": {"reproduce"},
    "transformers": {"reproduce"},
    "sentence_transformers": {"reproduce"},
    "dask": {"distributed"},
    "pyspark": {"distributed"},
}
SKIPPED = {SRC / "__init__.py", SRC / "__main__.py", SRC / "datasets" / "_make_example.py"}
MODULES = sorted(set(SRC.rglob("*.py")) - SKIPPED)


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_a_module_imports_only_from_the_layers_above_it(path):
    room = path.relative_to(SRC).parts[0].removesuffix(".py")
    for name in imports(path):
        top, *rest = name.split(".")
        if top == "uqeval":
            # `import uqeval` itself (the public names) is for the last layers.
            target = rest[0] if rest else "cli"
            if target in LAYERS:
                assert LAYERS.index(target) <= LAYERS.index(room), f"{room} imports {name}"
        elif top not in ANYWHERE:
            assert room in ALLOWED.get(top, set()), f"{room} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_no_module_is_too_long_to_read(path):
    assert len(path.read_text().splitlines()) <= 420


def test_import_uqeval_loads_no_heavy_package():
    heavy = ["scipy.stats", "torch", "altair", "pandas", "polars", "pyarrow", "narwhals", "typer", "rich", "sklearn"]
    code = f"import sys, uqeval; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_exist_and_are_documented():
    import uqeval
    from uqeval import metrics, scores, truth

    for module in (uqeval, metrics, scores, truth):
        for name in module.__all__:
            value = getattr(module, name)
            assert getattr(value, "__doc__", None), f"{module.__name__}.{name} has no docstring"


API = {
    "truth": "predicted_labels misclassified gap gap_from_logits bayes_labels phi varphi misaligned",
    "scores": "entropy gap_to_certain margin bernoulli_variance free_energy max_logit total_entropy aleatoric_entropy "
    "mutual_information predicted_class_variance vote_ratio vote_entropy expected_free_energy dirichlet_entropy "
    "dirichlet_mutual_information vacuity available compute",
    "metrics": "uq_auc uq_c_index aurc e_aurc augrc g_auc h_auc auarc prr risk_coverage_curve mce_curve mbc_curve ece "
    "brier log_loss kendall_tau one_vs_rest ood_auroc fpr_at_tpr ood_aupr REGISTRY",
}


@pytest.mark.parametrize("module", API)
def test_promised_names_are_exported(module):
    import importlib

    exported = importlib.import_module(f"uqeval.{module}").__all__
    assert set(API[module].split()) <= set(exported)
