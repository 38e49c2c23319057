"""The architecture: data flows one way, folders have doors, third parties stay in their rooms."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "uqeval"
# A module imports only from those before it (or from its own folder).
LAYERS = [
    "_version",
    "_signs",
    "_errors",
    "_lazy",
    "_lanes",
    "_files",
    "schemas",
    "kernels",
    "_check",
    "_rows",
    "inputs",
    "truth",
    "scores",
    "_result",
    "metrics",
    "inference",
    "decide",
    "monitor",
    "evaluation",
    "torch",
    "distributed",
    "gate",
    "datasets",
    "methods",
    "sklearn",
    "plot",
    "pages",
    "reproduce",
    "integrations",
    "cli",
    "pytest_plugin",
]
# Who may import which third party, and why only inside functions where that is so.
ROOMS = {
    "scipy": "_result scores metrics inference decide evaluation methods",
    "narwhals": "inputs distributed",
    "pytest": "pytest_plugin",
    "fsspec": "inputs",
    "pyarrow": "inputs _result distributed datasets",
    "pandas": "_result distributed",
    "polars": "_result distributed",
    "altair": "plot reproduce",
    "vl_convert": "plot pages reproduce",
    "jinja2": "pages",
    "typer": "cli",
    "rich": "cli methods",
    "packaging": "cli",
    "torch": "inputs torch methods reproduce integrations",
    "torchmetrics": "torch",
    "triton": "torch",
    "sklearn": "methods sklearn",
    "mlflow": "integrations",
    "lightning": "integrations",
    "pytorch_lightning": "integrations",
    "pooch": "datasets",
    "PIL": "datasets reproduce",
    "torchvision": "reproduce",
    "timm": "reproduce",
    "transformers": "reproduce",
    "sentence_transformers": "reproduce",
    "dask": "distributed",
    "pyspark": "distributed",
    "inspect_ai": "integrations",
}
LATE = {
    "scipy": "40 ms, and `import uqeval` must cost next to nothing",
    "fsspec": "an extra",
    "pyarrow": "60 ms",
    "narwhals": "50 ms",
    "pandas": "300 ms, and an extra",
    "polars": "an extra",
    "altair": "300 ms",
    "vl_convert": "150 ms",
    "jinja2": "50 ms",
    "rich": "60 ms, for a bar that few see",
    "packaging": "10 ms, for one command",
    "torch": "an extra, and 2 s",
    "pooch": "an extra",
    "PIL": "an extra",
    "torchvision": "an extra",
    "timm": "an extra",
    "transformers": "an extra",
    "sentence_transformers": "an extra",
    "dask": "an extra",
    "pyspark": "an extra",
}
# Our own modules that load inside a function: each needs a package that may not be there, or takes long to load.
LATE_OWN = {
    "uqeval.distributed.on_engine": "0.1 s, as all that follows: rows in memory need none of it",
    **{f"uqeval.distributed.plan.{name}": "of rows on an engine" for name in ("differences", "estimates", "run")},
    "uqeval.distributed.bounds.files": "of rows that stream by",
    **{
        f"uqeval.cli.{name}": "0.3 s for all commands, of which one is called"
        for name in (
            "apply",
            "check",
            "compare",
            "demo",
            "doctor",
            "evaluate",
            "gate",
            "monitor",
            "power",
            "reproduce_human",
            "threshold",
        )
    },
    **{
        f"uqeval.{name}": "NumPy, which the help of the commands need not wait for"
        for name in (
            "_check",
            "_result",
            "decide.apply",
            "decide.results",
            "decide.rows",
            "distributed.evaluate",
            "distributed.memory",
            "inputs.columns",
            "gate.judge",
            "gate.outputs",
            "gate.policy",
            "inputs.elsewhere",
            "inputs.files",
            "inputs.matching",
            "inputs.origin",
            "inputs.paths",
            "inputs.late_labels",
            "inputs.paths",
            "monitor",
            "monitor.drift",
            "monitor.prometheus",
            "monitor.words",
            "pages.words",
        )
    },
    "uqeval.datasets.files": "few want files to try commands on",
    "uqeval.cli.told": "few store what they see",
    **{
        f"uqeval.{name}": "a plugin of pytest loads nothing before it is asked"
        for name in ("cli.options", "evaluation.result", "inputs")
    },
    **dict.fromkeys(("uqeval.decide.choose", "uqeval.decide.outcome"), "few gates certify a share, of 30 ms"),
    "uqeval.evaluation.stored": "few read what was stored",
    "uqeval.cli.main": "0.3 s in which Ctrl-C would print a traceback",
    "uqeval.evaluation.unpaired": "few compare what was stored",
    "uqeval.evaluation.compare": "what evaluates need not wait for it",
    **{f"uqeval.inputs.{name}": "words for what is wrong" for name in ("guess", "strangers")},
    "uqeval.inputs.estimator": "what reads files needs none of it",
    "uqeval.evaluation.log": "few keep the numbers elsewhere",
    "uqeval.scores.neighbours": "of features, which few have",
    "uqeval.inputs.logs.reading": "six formats, of which a table of predictions needs none",
    "uqeval.pages.monitor": "Jinja, for those who make a page",
    "uqeval.pages.paper": "0.5 s for what makes pages, and most commands make none",
    "uqeval.distributed.engines.dask.engine": "the extra dask",
    "uqeval.distributed.engines.spark.engine": "the extra spark",
    "uqeval.kernels.native": "compiled, where there was a compiler",
    **dict.fromkeys(("uqeval.methods.batched", "uqeval.methods.loop"), "the extra torch"),
    **{f"uqeval.reproduce.models.vision.{name}": "the extra torch" for name in ("classify", "probe", "zoo")},
    **{f"uqeval.torch.triton.{name}": "Triton, which may not be there" for name in ("runs", "pairs")},
    "uqeval.torch.evaluation": "torch, which may not be there, and takes 2 s",
    "uqeval.reproduce.models.text.zeroshot": "all studies, which take a second",
    "uqeval.reproduce.synthetic.beyond": "the extra torch",
}
ANYWHERE = {"numpy", "__future__"} | set(sys.stdlib_module_names)
FACADES = {SRC / "__init__.py", SRC / "__main__.py"}
MODULES = sorted(set(SRC.rglob("*.py")) - FACADES)


def dotted(path):
    parts = path.relative_to(SRC.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


KNOWN = {dotted(path) for path in MODULES} | {"uqeval.kernels.native._native"}


def imports(tree):
    """(module, imported names or None, inside a function, only for types) of every import statement."""

    def walk(node, late, typed):
        for child in ast.iter_child_nodes(node):
            inside = late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            types = typed or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test))
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield alias.name, None, inside, types
            elif isinstance(child, ast.ImportFrom):
                yield "." * child.level + (child.module or ""), [a.name for a in child.names], inside, types
            yield from walk(child, inside, types)

    return list(walk(tree, False, False))


def targets(module, names):
    """The modules that an import of ours loads."""
    found = [module] if names is None else [f"{module}.{n}" if f"{module}.{n}" in KNOWN else module for n in names]
    return list(dict.fromkeys(found))


def private(name):
    return name.startswith("_") and not name.startswith("__")


def faults(path):
    """What a module imports that it must not."""
    tree = ast.parse(path.read_text())
    room = path.relative_to(SRC).parts[0].removesuffix(".py")
    for module, names, late, typed in imports(tree):
        top = module.split(".")[0]
        if top == "uqeval":
            parts = module.split(".")[1:]
            if not parts and room == "cli":
                continue  # the command line uses what users use
            for target in targets(module, names):
                if target not in KNOWN:
                    yield f"{target} is no module of ours (public names come from where they live)"
                    continue
                other = target.split(".")[1]
                if LAYERS.index(other) > LAYERS.index(room):
                    yield f"{target} lies behind {room}"
                if late and not typed and target not in LATE_OWN:
                    yield f"{target} is imported in a function without a reason"
                hidden = [p for p in target.split(".")[2:] if private(p)] + [n for n in names or [] if private(n)]
                if other != room and hidden and not (target == f"uqeval.{other}" and other in names):
                    yield f"{', '.join(hidden)} is private to {other}"
        elif top not in ANYWHERE:
            if room not in ROOMS.get(top, "").split():
                yield f"{top} has no place in {room}"
            elif late and not typed and top not in LATE:
                yield f"{top} is imported in a function without a reason"
        elif late and not typed and top not in {"__future__"} and not _heavy(top):
            yield f"{top} is imported in a function without a reason"
    for node in ast.walk(tree) if room != "_lazy" else ():
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in LOADERS:
            yield f"line {node.lineno}: a module is imported by its name"


LOADERS = {"import_module", "__import__"}


def _heavy(top):
    """Standard modules that take a while and are seldom needed."""
    return top in {
        "multiprocessing",
        "platform",
        "difflib",
        "fractions",
        "importlib",
        "sqlite3",
        "concurrent",
        "gzip",
        "html",
        "shlex",
        "tomllib",
    }


def test_modules_import_only_what_their_layer_may_see_and_say_so_at_the_top():
    found = [f"{path.relative_to(SRC)}: {fault}" for path in MODULES for fault in faults(path)]
    assert found == []


def test_no_module_imports_itself_in_a_circle_not_even_late():
    graph = {}
    for path in MODULES:
        needed = set()
        for module, names, _, _ in imports(ast.parse(path.read_text())):
            if module.startswith("uqeval"):
                needed |= {name for name in targets(module, names) if name in KNOWN}
        graph[dotted(path)] = needed - {dotted(path)}
    done, path = set(), []

    def visit(name):
        assert name not in path, " → ".join([*path, name])
        if name not in done:
            path.append(name)
            for other in sorted(graph.get(name, ())):
                visit(other)
            path.pop()
            done.add(name)

    for name in graph:
        visit(name)


def test_contributing_shows_the_folders_in_their_order():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    line = re.search(r"<!-- layers -->(.*?)<!-- /layers -->", text, re.DOTALL)
    assert line is not None
    assert re.findall(r"`(\w+)`", line[1]) == LAYERS
    assert {path.relative_to(SRC).parts[0].removesuffix(".py") for path in MODULES} == set(LAYERS)


def test_contributing_says_where_to_change_what_and_the_files_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    lines = [line for line in text.split("## Where to change what")[1].split("\n## ")[0].splitlines() if "→" in line]
    assert len(lines) >= 9
    for line in lines:
        files = re.findall(r"`([\w/]+(?:\.\w+)+|[\w/]+/)`", line.split("→")[1])
        assert 1 <= len(files) <= 2, line
        for name in files:
            assert (SRC / name).exists(), line


def test_no_module_is_too_long_to_read():
    long = {str(path.relative_to(SRC)): n for path in MODULES if (n := len(path.read_text().splitlines())) > 400}
    assert long == {}


def test_import_uqeval_loads_no_heavy_package():
    heavy = ["numpy", *(set(ROOMS) - {"pytest"})]
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
    "dirichlet_mutual_information vacuity mahalanobis knn_distance available compute",
    "metrics": "top_label_c_index "
    "uq_auc uq_c_index aurc e_aurc augrc g_auc h_auc auarc prr risk_coverage_curve mce_curve mbc_curve ece "
    "brier log_loss kendall_tau one_vs_rest ood_auroc fpr_at_tpr ood_aupr distance_c_index selective_accuracy "
    "REGISTRY",
}


def test_promised_names_are_exported():
    for module, names in API.items():
        exported = importlib.import_module(f"uqeval.{module}").__all__
        assert set(names.split()) <= set(exported)
