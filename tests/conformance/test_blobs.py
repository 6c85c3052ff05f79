import pytest

from spillover.stores.blobs import FileBlobs, MemoryBlobs
from spillover.testing.blobs_suite import BlobsSuite, Opening


@pytest.fixture(params=["memory", "files"])
def blob_opener(request: pytest.FixtureRequest) -> Opening:
    if request.param == "memory":
        return MemoryBlobs
    folder = request.getfixturevalue("tmp_path") / "blobs"
    return lambda bounds, now: FileBlobs(folder, bounds, now)


class TestBlobs(BlobsSuite):
    """On every store that the fixture `blob_opener` knows."""
