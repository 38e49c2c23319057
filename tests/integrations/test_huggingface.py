"""`compute_metrics`: a Hugging Face `Trainer` reports what `evaluate` says of its logits."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import uqeval as uq
from uqeval.integrations.huggingface import compute_metrics

NUMBERS = np.random.default_rng(0)
LOGITS, LABELS = NUMBERS.normal(size=(60, 3)), NUMBERS.integers(3, size=60)


def test_it_gives_the_numbers_of_evaluate_by_name():
    ev = uq.evaluate(uq.Predictions(LABELS, logits=LOGITS), scores="entropy", metrics=["accuracy", "uq_auc"])
    found = compute_metrics("entropy", ["accuracy", "uq_auc"])(SimpleNamespace(predictions=LOGITS, label_ids=LABELS))
    auc, accuracy = ev["entropy", "uq_auc"], ev["accuracy"]
    assert found == {
        "entropy/uq_auc": auc.value,
        "entropy/uq_auc_low": auc.low,
        "entropy/uq_auc_high": auc.high,
        "model/accuracy": accuracy.value,
        "model/accuracy_low": accuracy.low,
        "model/accuracy_high": accuracy.high,
    }


def test_logits_may_come_first_in_a_tuple_and_bounds_may_be_left_out():
    hidden = np.zeros((60, 4, 5))
    outputs = SimpleNamespace(predictions=(LOGITS, hidden), label_ids=(LABELS,))
    found = compute_metrics("max_logit", "uq_auc", bounds=False)(outputs)
    assert found == {"max_logit/uq_auc": uq.metrics.uq_auc(-LOGITS.max(axis=1), LOGITS.argmax(axis=1) != LABELS)}


def test_a_label_for_every_token_is_refused_in_words():
    outputs = SimpleNamespace(predictions=np.zeros((2, 5, 3)), label_ids=np.zeros((2, 5)))
    with pytest.raises(uq.InputError, match=r"logits of shape \(2, 5, 3\) and labels of shape \(2, 5\)"):
        compute_metrics()(outputs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of what the Trainer imports
def test_a_trainer_reports_them_at_each_evaluation(tmp_path, monkeypatch):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    monkeypatch.delitem(sys.modules, "marimo", raising=False)  # of which other tests show a page: no notebook is here
    monkeypatch.setattr(transformers.trainer, "is_datasets_available", lambda: False)  # tests/datasets passes for it
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, num_labels=3
    )
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config)
    rows = [{"input_ids": torch.tensor([k % 50, k % 7]), "labels": int(label)} for k, label in enumerate(LABELS)]
    options = transformers.TrainingArguments(
        output_dir=str(tmp_path), per_device_eval_batch_size=30, report_to=[], use_cpu=True, disable_tqdm=True
    )
    metrics = compute_metrics("entropy", ["accuracy", "uq_auc"])
    trainer = transformers.Trainer(model=model, args=options, eval_dataset=rows, compute_metrics=metrics)
    found = trainer.evaluate()
    outputs = trainer.predict(rows)
    ev = uq.evaluate(uq.Predictions(LABELS, logits=outputs.predictions), scores="entropy", metrics="uq_auc")
    assert found["eval_entropy/uq_auc_low"] == pytest.approx(ev["entropy", "uq_auc"].low, rel=1e-12)
    assert found["eval_model/accuracy"] == (outputs.predictions.argmax(axis=1) == LABELS).mean()
