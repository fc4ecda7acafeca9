"""The table of relative positions: which distances share a row."""

import pytest
import torch

from electra.modeling.kernels.relative_table import RelativeTable, log_bucket


@pytest.mark.parametrize(("buckets", "longest"), [(256, 512), (32, 128), (8, 24), (320, 1024)])
def test_near_distances_have_buckets_of_their_own_and_far_ones_share(buckets: int, longest: int) -> None:
    distances = torch.arange(-longest + 1, longest)
    found = log_bucket(distances, buckets, longest)
    near = distances.abs() <= buckets // 2
    assert torch.equal(found[near], distances[near])
    assert bool((found.diff() >= 0).all()) and torch.equal(found, -found.flip(0))
    assert found[-1] == buckets - 1 and found.unique().numel() < len(distances)


def test_buckets_are_those_of_transformers() -> None:
    modeling = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    for buckets, longest in ((256, 512), (32, 128), (8, 24), (320, 1024)):
        distances = torch.arange(-2 * longest, 2 * longest)
        expected = modeling.make_log_bucket_position(distances, buckets, longest).long()
        assert torch.equal(log_bucket(distances, buckets, longest), expected)


def test_rows_are_those_that_a_length_needs() -> None:
    table = RelativeTable(8, buckets=16, max_distance=64, norm_epsilon=1e-7)
    rows_RD, indices_S = table(5)
    assert rows_RD.shape == (9, 8) and torch.equal(indices_S, torch.arange(9))
    torch.testing.assert_close(rows_RD, table.norm(table.table.weight[16 - 4 : 16 + 5]))
    rows_RD, indices_S = table(200)  # beyond the table
    assert rows_RD.shape == (32, 8) and indices_S[[0, -1]].tolist() == [0, 31]


@pytest.mark.parametrize(("buckets", "longest"), [(256, 512), (32, 128), (8, 24), (320, 1024), (0, 24)])
def test_the_first_and_last_row_fit_the_rows_of_all_distances(buckets: int, longest: int) -> None:
    table = RelativeTable(2, buckets=buckets, max_distance=longest, norm_epsilon=None)
    for length in range(1, 2 * longest):
        rows_RD, indices_S = table(length)
        assert indices_S[0] == 0 and indices_S[-1] == len(rows_RD) - 1
