"""Where files come from: the user's folder, the environment's, the cache, the web; or from nowhere."""

from __future__ import annotations

import hashlib
import http.server
import socket
import sys
import threading
from pathlib import Path

import pytest

from uqeval import InputError, MissingExtra
from uqeval.datasets.fetch import Remote, fetch, lookup

BODY = b"a table of votes " * 5000
SHA = f"sha256:{hashlib.sha256(BODY).hexdigest()}"


class Handler(http.server.BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self):
        self.asked.append(self.path)
        if self.path == "/absent":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY[:1000] if self.path == "/cut" else BODY)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    Handler.asked = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{made.server_address[1]}"
        made.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, and no data folder."""
    monkeypatch.delenv("UQEVAL_DATA", raising=False)
    pooch = pytest.importorskip("pooch")
    folder = tmp_path / "cache"
    monkeypatch.setattr(pooch, "os_cache", lambda name: folder / name)
    return folder / "uqeval"


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file()) if folder.exists() else []


def test_a_file_is_downloaded_once_and_then_found_in_the_cache(server, cache):
    remote = Remote("set/votes.npy", f"{server}/votes", SHA)
    first, second = fetch(remote), fetch(remote)
    assert first == second == cache / "set" / "votes.npy"
    assert first.read_bytes() == BODY
    assert Handler.asked == ["/votes"]


def test_a_download_with_another_hash_is_refused_and_not_kept(server, cache):
    with pytest.raises(InputError, match=r"votes\.npy") as caught:
        fetch(Remote("set/votes.npy", f"{server}/votes", "sha256:" + "0" * 64))
    assert hashlib.sha256(BODY).hexdigest() in str(caught.value)
    assert "0" * 64 in str(caught.value)
    assert files(cache) == []


def test_a_cut_transfer_leaves_no_file_behind(server, cache):
    for known in [SHA, None]:
        with pytest.raises(InputError, match=r"votes\.npy"):
            fetch(Remote("set/votes.npy", f"{server}/cut", known))
        assert files(cache) == []


def test_a_missing_page_says_where_to_put_the_file(server, cache):
    with pytest.raises(InputError, match="404") as caught:
        fetch(Remote("set/votes.npy", f"{server}/absent", SHA))
    assert f"{server}/absent" in str(caught.value)
    assert str(cache / "set" / "votes.npy") in str(caught.value)


def test_without_network_the_error_gives_address_and_place_and_a_file_put_there_is_used(cache):
    with socket.socket() as closed:  # a port where nobody listens
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/votes"
        remote = Remote("set/votes.npy", url, SHA)
        with pytest.raises(InputError, match="could not be downloaded") as caught:
            fetch(remote)
    target = cache / "set" / "votes.npy"
    assert url in str(caught.value)
    assert str(target) in str(caught.value)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(BODY)
    assert fetch(remote) == target


def test_a_data_folder_comes_first_with_or_without_the_name_of_the_set(tmp_path, monkeypatch):
    for place in ["set/votes.npy", "votes.npy"]:
        remote = Remote("set/votes.npy", "http://127.0.0.1:1/never", SHA)
        folder = tmp_path / place.replace("/", "-")
        (folder / place).parent.mkdir(parents=True)
        (folder / place).write_bytes(BODY)
        assert fetch(remote, folder) == folder / place
        monkeypatch.setenv("UQEVAL_DATA", str(folder))
        assert fetch(remote) == folder / place


def test_an_explicit_folder_is_never_passed_over_for_a_download(tmp_path, server):
    with pytest.raises(InputError, match=r"no votes\.npy.*set/votes\.npy") as caught:
        fetch(Remote("set/votes.npy", f"{server}/votes", SHA), tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert Handler.asked == []


def test_the_folder_of_the_environment_may_lack_the_file(tmp_path, monkeypatch, server, cache):
    monkeypatch.setenv("UQEVAL_DATA", str(tmp_path))
    assert lookup("set/votes.npy") is None
    assert fetch(Remote("set/votes.npy", f"{server}/votes", SHA)) == cache / "set" / "votes.npy"


def test_the_environment_must_name_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("UQEVAL_DATA", str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"UQEVAL_DATA must name a folder; '.*none' is none"):
        lookup("set/votes.npy")


def test_a_local_file_with_another_hash_is_named_with_both_hashes(tmp_path):
    (tmp_path / "votes.npy").write_bytes(b"something else")
    with pytest.raises(InputError, match=r"votes\.npy") as caught:
        fetch(Remote("set/votes.npy", "https://never.invalid", SHA), tmp_path)
    assert hashlib.sha256(b"something else").hexdigest() in str(caught.value)
    assert SHA.removeprefix("sha256:") in str(caught.value)


def test_data_must_be_a_folder(tmp_path):
    with pytest.raises(InputError, match="`data` must be a folder"):
        fetch(Remote("a", "b", None), tmp_path / "none")


def test_without_pooch_a_download_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingExtra, match=r"uqeval\[reproduce\]"):
        fetch(Remote("set/votes.npy", "https://never.invalid", SHA))
