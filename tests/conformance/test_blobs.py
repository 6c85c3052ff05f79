import pytest

from spillover.stores.blobs import FileBlobs, MemoryBlobs
from spillover.stores.counted import CountedBlobs
from spillover.testing.blobs_suite import BlobsSuite, Opening


@pytest.fixture(params=["memory", "files", "counted"])
def blob_opener(request: pytest.FixtureRequest) -> Opening:
    if request.param == "memory":
        return MemoryBlobs
    if request.param == "counted":
        return lambda bounds, now: CountedBlobs(MemoryBlobs(bounds, now))
    folder = request.getfixturevalue("tmp_path") / "blobs"
    return lambda bounds, now: FileBlobs(folder, bounds, now)


class TestBlobs(BlobsSuite):
    """On every store that the fixture `blob_opener` knows."""
