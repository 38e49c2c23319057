"""What the tests of the studies share."""

import pytest


@pytest.fixture(scope="module")
def one_thread():
    """Tiny networks are faster so."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    former = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(former)
