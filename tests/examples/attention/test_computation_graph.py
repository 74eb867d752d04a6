"""Counts of nodes on paths between tensors are right for small graphs."""

import torch
from torch import Tensor

from examples.attention.costs import WayCounter, is_matrix_product, node_of

SIDE = 3
DEEP = 5000


def matrix() -> Tensor:
    return torch.randn(SIDE, SIDE, requires_grad=True)


def test_products_one_after_the_other_add_up() -> None:
    x = matrix()
    assert WayCounter([x], is_matrix_product, max).count(x @ x.detach() @ x.detach()) == 2


def test_independent_products_count_once() -> None:
    x = matrix()
    assert WayCounter([x], is_matrix_product, max).count(x @ x.detach() + x.detach() @ x) == 1


def test_a_shortcut_shortens_only_the_shortest_path() -> None:
    x = matrix()
    y = x + (x @ x.detach()).tanh() @ x.detach()
    assert WayCounter([x], is_matrix_product, min).count(y) == 0
    assert WayCounter([x], is_matrix_product, max).count(y) == 2


def test_only_matrix_products_count() -> None:
    x, bias, kernel = matrix(), torch.ones(SIDE), torch.ones(SIDE, SIDE, 1)
    for product in (x.mm(x.detach()), torch.addmm(bias, x, x.detach()), torch.conv1d(x[None], kernel)):
        assert WayCounter([x], is_matrix_product, max).count(product) == 1
    batch = x[None].bmm(x.detach()[None])
    assert WayCounter([x], is_matrix_product, max).count(torch.baddbmm(batch, batch, batch.detach())) == 2
    assert WayCounter([x], is_matrix_product, max).count((x * x).softmax(dim=0).sum() + x.exp().mean()) == 0


def test_there_is_no_path_from_an_unused_tensor() -> None:
    x, unused = matrix(), matrix()
    assert WayCounter([unused], is_matrix_product, min).count(x @ x) is None


def test_only_paths_from_the_inputs_count() -> None:
    """Products of weights before they meet the input are not on its path."""
    x, weight = matrix(), matrix()
    assert WayCounter([x], is_matrix_product, max).count(x @ (weight @ weight @ weight)) == 1


def test_later_computations_are_counted() -> None:
    x = matrix()
    y = x @ x.detach()
    counter = WayCounter([x], is_matrix_product, max)
    assert counter.count(y) == 1
    assert counter.count(y @ x.detach()) == 2


def test_chosen_nodes_can_be_counted() -> None:
    x = matrix()
    y = x.exp()
    z = y.exp().exp()
    assert WayCounter([x], {node_of(y), node_of(z)}.__contains__, min).count(z) == 2


def test_a_graph_may_be_deeper_than_the_stack_of_python() -> None:
    x = torch.ones(1, 1, requires_grad=True)
    y = x
    for _ in range(DEEP):
        y = y @ x.detach()
    assert WayCounter([x], is_matrix_product, max).count(y) == DEEP
