"""Logs of language models in the schemas of those who write them: lines and files as their code makes them."""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np


def answers(n=60, seed=0, least=0.4):
    """(right, confidence) of n answers: surer ones are right more often."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(least, 0.99, n)
    return (rng.random(n) < confidence).astype(int), confidence


def jsonl(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def lm_eval(folder, right, confidence, task="arc_easy", model="org__tiny", choices=3, **more):
    """Multiple choice: evaluator.py's samples as evaluation_tracker.py sanitizes them (lm_eval 0.4.13)."""
    rng, records = np.random.default_rng(1), []
    for k, (hit, sure) in enumerate(zip(right, confidence, strict=True)):
        texts = ["no", "maybe so", "yes, of course"][:choices]
        gold = int(rng.integers(choices))
        best = gold if hit else (gold + 1) % choices
        lls = [float(np.log((1 - sure) / (choices - 1)))] * choices
        lls[best] = float(np.log(sure))
        norm = int(np.argmax([value / len(text) for value, text in zip(lls, texts, strict=True)]) == gold)
        records.append(
            {"doc_id": k, "doc": {"question": f"question {k}", "difficulty": k % 3}, "target": str(gold)}
            | {"arguments": {f"gen_args_{c}": {"arg_0": f"Q{k}", "arg_1": f" {t}"} for c, t in enumerate(texts)}}
            | {"resps": [[[str(value), "False"]] for value in lls]}
            | {"filtered_resps": [[str(value), "False"] for value in lls], "filter": "none"}
            | {"metrics": ["acc", "acc_norm"], "doc_hash": f"hash{k}", "prompt_hash": "p", "target_hash": "t"}
            | {"acc": float(hit), "acc_norm": float(norm)}
            | more
        )
    return jsonl(folder / model / f"samples_{task}_2026-08-01T10-00-00.000000.jsonl", records)


def helm(folder, right, confidence, model="tiny"):
    """One run directory: PerInstanceStats with Stat and MetricName as dataclasses (crfm-helm 0.5.16)."""

    def stat(name, value):
        return {"name": {"name": name, "split": "test"}, "count": 1, "sum": value, "mean": value}

    run = folder / f"mmlu:subject=anatomy,method=multiple_choice_separate_original,model={model}"
    run.mkdir(parents=True)
    records = [
        {"instance_id": f"id{k}", "train_trial_index": 0}
        | ({"perturbation": {"name": "typos"}} if copy else {})
        | {"stats": [stat("exact_match", float(hit)), stat("max_prob", float(sure)), stat("logprob", -1.0 - k)]}
        for k, (hit, sure) in enumerate(zip(right, confidence, strict=True))
        for copy in (False, True)
    ]
    (run / "per_instance_stats.json").write_text(json.dumps(records))
    flat = [record | {"stats": {one["name"]["name"]: one["mean"] for one in record["stats"]}} for record in records]
    (run / "display_predictions.json").write_text(json.dumps(flat))
    return run


def every_eval_ever(folder, right, confidence):
    """Instance-level records of schema 0.3.0, two sampled answers each; the confidence is a text in `metadata`."""
    records = [
        {"schema_version": "0.3.0", "evaluation_id": "e/1", "model_id": "org/tiny", "evaluation_name": "quiz"}
        | {"sample_id": f"q{k}", "sample_hash": f"hash{k}", "interaction_type": "single_turn"}
        | {"input": {"raw": f"question {k}", "reference": ["a"]}, "output": {"raw": ["a", "a" if sure > 0.6 else "b"]}}
        | {"answer_attribution": [], "evaluation": {"score": float(hit), "is_correct": bool(hit)}}
        | {"metadata": {"confidence": f"{sure:.6f}", "latency": "1.5", "low_confidence": "0"}}
        for k, (hit, sure) in enumerate(zip(right, confidence, strict=True))
    ]
    return jsonl(folder / "1f0c_samples.jsonl", records)


def uqlm_data(right, confidence):
    """`UQResult.data` with the judgement that its user adds (uqlm 0.6.7)."""
    return {
        "prompts": [f"question {k}" for k in range(len(right))],
        "responses": ["yes" if hit else "no" for hit in right],
        "semantic_negentropy": confidence.tolist(),
        "discrete_entropy_values": (1 - confidence).tolist(),
        "num_semantic_sets": [1 + k % 3 for k in range(len(right))],
        "correct": right.tolist(),
    }


def uqlm_csv(path, right, confidence):
    """What `to_df().to_csv()` writes: the last "s" of a name is gone."""
    data = {name.removesuffix("s"): values for name, values in uqlm_data(right, confidence).items()}
    rows = zip(*data.values(), strict=True)
    path.write_text("\n".join([",".join(data), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def lm_polygraph(path, right, confidence):
    """What `UEManager.save` saves (lm_polygraph 0.7.0): defaultdicts, numbers of NumPy among them."""
    import torch

    estimations, quality = defaultdict(list), defaultdict(list)
    estimations["sequence", "MaximumSequenceProbability"] += list(1 - confidence)
    estimations["token", "TokenEntropy"] += [0.5] * 7
    quality["sequence", "Accuracy"] += right.tolist()
    stats = {"input_texts": [f"question {k}" for k in range(len(right))], "embeddings": np.zeros((3, 2))}
    held = {"state": "Done", "metrics": {("sequence", "a", "b", "prr"): np.float64(0.4)}, "stats": stats}
    torch.save(held | {"estimations": estimations, "gen_metrics": quality}, path)
    return path


def inspect_json(path, right, confidence, **sample):
    """A log of Inspect in its JSON form; `tests/inputs/tiny.eval` is one that the package itself wrote."""
    samples = [
        {"id": f"q{k}", "epoch": 1, "input": "?", "target": "a", "metadata": {"difficulty": k % 3}}
        | {"scores": {"judge": {"value": "C" if hit else "I", "answer": "a", "metadata": {"confidence": float(sure)}}}}
        | sample
        for k, (hit, sure) in enumerate(zip(right, confidence, strict=True))
    ]
    spec = {"created": "2026-08-01T10:00:00+00:00", "task": "quiz", "model": "org/tiny"}
    path.write_text(json.dumps({"version": 2, "status": "success", "eval": spec, "samples": samples}))
    return path
