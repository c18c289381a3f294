"""Linear layers: rows whose bits are their own, the probe that finds out, and the int8 kernels."""

from __future__ import annotations

import warnings

import pytest

from tests.support.guard import program
from tts.errors import ConfigError

torch = pytest.importorskip("torch", reason="the engine's linear layers run on torch")

from tts.backends.engine import int8, linear  # noqa: E402 - torch comes first
from tts.backends.engine.linear import (  # noqa: E402
    DeviceTiledLinear,
    HostLinear,
    Linear,
    PackedLinear,
    PlainLinear,
    SharedLinear,
    TiledLinear,
    make_linear,
    torch_threads,
)
from tts.backends.engine.loading import EngineOptions  # noqa: E402

SHAPES = [(960, 576), (576, 1536), (1, 64), (17, 65), (130, 192), (200, 4864)]
ROWS = [*range(1, 20), 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 200, 255, 257]


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_rows_are_exact(layer: Linear, x: torch.Tensor, threads: int) -> None:
    """Any number of rows, first or last, and shuffled: each has the bits it has among all."""
    with torch_threads(threads):
        whole = layer(x)
        for rows in ROWS:
            assert torch.equal(layer(x[:rows]), whole[:rows]), rows
            assert torch.equal(layer(x[-rows:]), whole[-rows:]), rows
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
        assert torch.equal(layer(x[order]), whole[order])


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("precision", ["float32", "int8", "bfloat16"])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_have_their_own_bits(
    shape: tuple[int, int], with_bias: bool, precision: linear.Precision, threads: int
) -> None:
    outputs, inputs = shape
    layer = make_linear(
        normal(outputs, inputs, seed=2),
        normal(outputs, seed=3) if with_bias else None,
        precision=precision,
        strict=True,
        threads=threads,
    )
    assert_rows_are_exact(layer, normal(300, inputs), threads)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_one_thread_and_two_give_the_same_bits(precision: linear.Precision) -> None:
    layer, x = make_linear(normal(576, 1536), None, precision=precision, threads=2), normal(70, 1536, seed=1)
    with torch_threads(1):
        alone = layer(x)
    with torch_threads(2):
        assert torch.equal(layer(x), alone)


@pytest.mark.parametrize(("precision", "error"), [("float32", 1e-6), ("int8", 0.015), ("bfloat16", 0.005)])
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_it_is_the_product(precision: linear.Precision, error: float, strict: bool, with_bias: bool) -> None:
    if precision == "int8" and not int8.fbgemm_is_exact():
        pytest.skip("this CPU has no exact int8 product, so that a model in int8 is refused")
    weight, bias, x = normal(100, 300, seed=2), 10 * normal(100, seed=3) if with_bias else None, normal(37, 300)
    layer = make_linear(weight, bias, precision=precision, strict=strict)
    expected = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    y = layer(x)
    assert y.dtype == x.dtype
    assert (y - expected).norm() / expected.norm() < error
    assert (layer.out_features, layer.in_features) == (100, 300)
    assert layer.weight_bytes == {"float32": 4 * 30_000, "int8": 30_400, "bfloat16": 2 * 30_000}[precision]


@pytest.mark.parametrize("precision", ["float32", "int8", "bfloat16"])
@pytest.mark.parametrize("strict", [False, True])
def test_no_rows_give_no_rows(precision: linear.Precision, strict: bool) -> None:
    layer = make_linear(normal(5, 64), normal(5), precision=precision, strict=strict)
    assert layer(torch.empty(0, 64)).shape == (0, 5)


def test_rows_may_lie_apart_in_memory() -> None:
    layer, x = make_linear(normal(40, 64), None), normal(64, 30)
    assert torch.equal(layer(x.T), layer(x.T.contiguous()))


def test_the_weight_may_change_afterwards() -> None:
    for precision in ("float32", "int8"):
        weight = normal(40, 64)
        layer, x = make_linear(weight, None, precision=precision), normal(3, 64)
        before = layer(x)
        weight.zero_()
        assert torch.equal(layer(x), before)


class Uneven:
    """A layer whose rows are exact from `least` rows on."""

    out_features, in_features, weight_bytes, least = 4, 8, 0, 1

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.weight = weight

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        return x[:, :1] * self.weight[:, 0] * (1 if len(x) >= self.least else 1.000001)


@pytest.mark.parametrize(
    ("least", "found"), [(1, 1), (2, 2), (3, 3), (4, 7), (9, 15), (16, 16), (17, None), (34, None), (100, None)]
)
def test_the_probe_finds_the_least_rows(monkeypatch: pytest.MonkeyPatch, least: int, found: int | None) -> None:
    class Kind(Uneven):
        pass

    Kind.least = least
    monkeypatch.setattr(linear, "_known", {})
    assert linear.least_exact_rows(Kind, torch.zeros(16, 8), None, (1,)) == found


def test_the_probe_asks_once_for_a_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Kind(Uneven):
        def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
            asked.append(len(x))
            return super().__call__(x)

    monkeypatch.setattr(linear, "_known", {})
    linear.least_exact_rows(Kind, torch.zeros(16, 8), None, (1,))
    first = len(asked)
    linear.least_exact_rows(Kind, torch.ones(16, 8), None, (1,))
    assert len(asked) == first
    linear.least_exact_rows(Kind, torch.ones(16, 8), None, (2,))
    assert len(asked) == 2 * first


@pytest.mark.parametrize(("outputs", "probed"), [(1024, 1024), (1025, 256 + 1), (4864, 256)])
def test_a_layer_of_many_outputs_is_probed_on_a_few_of_them(
    outputs: int, probed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[tuple[int, ...]] = []

    class Kind(Uneven):
        def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
            super().__init__(weight)
            shapes.append(tuple(weight.shape))

    monkeypatch.setattr(linear, "_known", {})
    monkeypatch.setattr(linear, "_least_exact_rows", lambda *_: 7)
    assert linear.least_exact_rows(Kind, torch.zeros(outputs, 8), None, (1,)) == 7
    assert shapes == [(probed, 8)]


@pytest.mark.slow
@pytest.mark.parametrize("instructions", [pytest.param("SSE41", marks=pytest.mark.slow), "AVX2"])
def test_rows_of_onednn_are_exact_with_fewer_instructions(monkeypatch: pytest.MonkeyPatch, instructions: str) -> None:
    """oneDNN has other code for other CPUs, and which numbers of rows are exact changes with it."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", instructions)
    done = program(
        "import torch\n"
        "from tts.backends.engine.linear import PackedLinear, least_exact_rows\n"
        "for outputs, inputs in ((960, 576), (200, 1536)):\n"
        "    weight, x = torch.randn(outputs, inputs), torch.randn(128, inputs)\n"
        "    least = least_exact_rows(PackedLinear, weight, None, (1, 2))\n"
        "    layer = PackedLinear(weight, None, least_rows=least)\n"
        "    torch.set_num_threads(2)\n"
        "    whole = layer(x)\n"
        "    for rows in range(1, 128):\n"
        "        assert torch.equal(layer(x[-rows:]), whole[-rows:]), (outputs, inputs, rows)\n"
    )
    assert done.returncode == 0, done.stderr


def test_float32_is_our_own_product_on_a_cpu() -> None:
    for outputs, bias in ((94, None), (960, normal(960))):
        layer = make_linear(normal(outputs, 576), bias, threads=2)
        assert isinstance(layer, HostLinear)
        assert_rows_are_exact(layer, normal(300, 576), 1)
        x = normal(7, 576, seed=1)
        torch.testing.assert_close(
            layer(x), torch.nn.functional.linear(x, normal(outputs, 576), bias), rtol=1e-4, atol=1e-4
        )
        assert layer(x[:0]).shape == (0, outputs)


def test_few_rows_are_filled_up() -> None:
    weight, x = normal(320, 1536), normal(40, 1536, seed=1)
    filled = PackedLinear(weight, least_rows=7)
    assert torch.equal(filled(x[:1]), PackedLinear(weight)(torch.cat([x[:1], torch.zeros(6, 1536)]))[:1])


def test_tiles_stand_in_where_onednn_is_not_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "least_exact_rows", lambda kind, *_: 1 if kind is TiledLinear else None)
    layer = make_linear(normal(576, 576), normal(576), precision="bfloat16", strict=True)
    assert isinstance(layer, TiledLinear)
    assert_rows_are_exact(layer, normal(300, 576), 1)


def test_tiles_of_a_device_have_exact_rows() -> None:
    layer = DeviceTiledLinear(normal(96, 64), normal(96))
    assert_rows_are_exact(layer, normal(300, 64), 1)


def test_a_machine_without_exact_products_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "least_exact_rows", lambda *_: None)
    with pytest.raises(ConfigError, match="strict"):
        make_linear(normal(8, 64), None, precision="bfloat16", strict=True)
    make_linear(normal(8, 64), None, precision="bfloat16", strict=False)


def test_bfloat16_is_packed_only_where_the_cpu_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    assert linear.has_bfloat16() == torch.backends.mkldnn.is_available()
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict, raising=False)
    assert not linear.has_bfloat16()
    assert isinstance(make_linear(normal(8, 64), None, precision="bfloat16", strict=True), TiledLinear)
    assert isinstance(make_linear(normal(8, 64), None, precision="bfloat16", strict=False), PlainLinear)


class Packed(PlainLinear):
    """Stands for oneDNN's layer, which cannot be made of bfloat16 on every CPU."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None, *, least_rows: int = 1) -> None:
        super().__init__(weight, bias)
        self.least_rows = least_rows


@pytest.fixture
def with_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that is taken to have instructions for bfloat16."""
    monkeypatch.setattr(linear, "has_bfloat16", lambda: True)
    monkeypatch.setattr(linear, "PackedLinear", Packed)


@pytest.mark.usefixtures("with_bfloat16")
def test_small_products_stay_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "least_exact_rows", lambda *_: 1)
    assert not isinstance(make_linear(normal(64, 64), None, precision="bfloat16", threads=1), SharedLinear)
    assert not isinstance(make_linear(normal(4096, 2048), None, precision="bfloat16", threads=2), SharedLinear)
    layer = make_linear(normal(1000, 1000), None, precision="bfloat16", threads=2)
    assert isinstance(layer, SharedLinear)
    set_to: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    layer(normal(2, 1000))
    assert set_to == [1, torch.get_num_threads()]
    layer(normal(40, 1000))
    assert len(set_to) == 2


@pytest.mark.usefixtures("with_bfloat16")
def test_onednn_serves_where_only_the_number_of_threads_changes_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "least_exact_rows", lambda kind, w, b, threads: None if len(threads) > 1 else 3)
    layer = make_linear(normal(64, 64), None, precision="bfloat16", threads=2)
    assert isinstance(layer, Packed)
    assert layer.least_rows == 3


@pytest.mark.parametrize("precision", ["float32", "int8", "bfloat16"])
def test_rows_of_another_dtype_come_back_in_it(precision: linear.Precision) -> None:
    x = normal(3, 64).to(torch.bfloat16)
    assert make_linear(normal(8, 64), normal(8), precision=precision)(x).dtype == torch.bfloat16


def test_threads_are_put_back() -> None:
    before = torch.get_num_threads()
    make_linear(normal(33, 64), None, threads=before + 1)
    assert torch.get_num_threads() == before


def int8_by_definition(weight: torch.Tensor, bias: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    """The int8 layer in exact integers: what every kernel must give, bit for bit."""
    levels, scales = int8.quantise_weight(weight)
    steps = x.abs().amax(1, keepdim=True).div_(127).clamp_min_(1e-30)
    rounded = (x / steps + 128).round_().sub_(128)
    sums = (rounded.double() @ levels.double().T).float() * scales
    return sums.mul_(steps) if bias is None else torch.addcmul(bias, sums, steps)


@pytest.mark.slow
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shape", [*SHAPES, (33, 7), (64, 1)])
def test_int8_kernels_give_exact_sums(shape: tuple[int, int], with_bias: bool) -> None:
    weight, bias = normal(*shape), normal(shape[0], seed=3) if with_bias else None
    weight[0] = 1  # the greatest sums there are
    layers: list[Linear] = [int8.FbgemmLinear(weight, bias)] if int8.fbgemm_is_exact() else []
    assert layers or pytest.skip("no int8 kernel works on this machine")
    halves = torch.arange(-127, 127).float() + 0.5
    near = torch.cat([halves, torch.nextafter(halves, torch.tensor(1e9)), torch.nextafter(halves, torch.tensor(-1e9))])
    near = near[:, None].repeat(1, shape[1])
    near[:, -1] = 127  # so that a level is 1
    ones = torch.ones(5, shape[1])
    for x in (normal(300, shape[1], seed=5), near, ones, -ones):
        for layer in layers:
            assert torch.equal(layer(x), int8_by_definition(weight, bias, x))


def test_int8_is_fbgemm_where_it_is_exact_else_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = normal(60, 200)
    if int8.fbgemm_is_exact():
        assert isinstance(make_linear(weight, None, precision="int8"), int8.FbgemmLinear)
    monkeypatch.setattr(int8, "fbgemm_is_exact", lambda: False)
    with pytest.raises(ConfigError, match=r"precision.*'int8',.*int8 product") as refused:
        EngineOptions(device="cpu", precision="int8")
    assert "precision='float32'" in str(refused.value)


def test_strict_on_a_device_is_an_executor_of_its_own() -> None:
    asked, plain, host = (
        EngineOptions(device="cuda", executor="strict"),
        EngineOptions(device="cuda"),
        EngineOptions(device="cpu"),
    )
    assert [(one.attention, one.exact) for one in (asked, plain, host)] == [
        ("triton_strict", True),
        ("triton", False),
        ("strict", True),
    ]
    assert EngineOptions(device="cpu", executor="triton_strict").exact
    with pytest.raises(ConfigError, match=r"precision 'int8'.*device"):
        EngineOptions(device="cuda", precision="int8")


def test_fbgemm_is_not_taken_where_it_saturates_or_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def saturating(levels: torch.Tensor, scales: torch.Tensor) -> int8.Kernel:
        return lambda x: ((x + 128).round().sub(128) @ levels.float().t()).clamp(-32768, 32767) * scales

    def gone(levels: torch.Tensor, scales: torch.Tensor) -> int8.Kernel:
        raise AttributeError

    for kind in (saturating, gone):
        monkeypatch.setattr(int8, "fbgemm", kind)
        assert not int8.fbgemm_is_exact.__wrapped__()


def test_int8_rows_of_zeros_give_the_bias_and_broken_rows_stay_alone() -> None:
    bias = normal(40)
    layer, x = make_linear(normal(40, 64), bias, precision="int8"), normal(3, 64)
    x[0], x[1, 5] = 0, float("nan")
    y = layer(x)
    assert torch.equal(y[0], bias)
    assert y[1].isnan().all()
    assert y[2].isfinite().all()


def test_a_weight_row_of_zeros_gives_zeros() -> None:
    weight = normal(4, 64)
    weight[1] = 0
    assert (make_linear(weight, None, precision="int8")(normal(5, 64))[:, 1] == 0).all()


@pytest.mark.slow
def test_int8_silences_torch_where_it_makes_its_weights_and_nothing_else() -> None:
    done = program(
        "import torch, warnings\n"
        "from tts.backends.engine.int8 import FbgemmLinear\n"
        "before = list(warnings.filters)\n"
        "FbgemmLinear(torch.ones(8, 64))(torch.ones(3, 64))\n"
        "assert warnings.filters == before\n"
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    with warnings.catch_warnings(record=True) as caught:
        make_linear(normal(8, 64), None, precision="int8")(normal(3, 64))
    assert not caught


@pytest.mark.slow
def test_int8_keeps_most_of_smollm2() -> None:
    """Measured: 0.035 nats and 90.7 % on 1,326 tokens. Weights alone cost 0.003 nats; rounding a whole row by one
    scale, the rest.
    """
    pytest.importorskip("transformers")
    from benchmarks.engine.int8_quality import measure
    from tts.models.registry import get, locate

    try:
        locate(get("smollm2"))
    except ConfigError as missing:
        pytest.skip(str(missing))
    quality = measure("smollm2")
    assert quality.kl_mean < 0.05
    assert quality.forced_agreement >= 0.88
