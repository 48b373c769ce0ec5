"""What a kernel's inputs may be: on the scripted runtime, where the shapes, types and sizes that arrive are recorded."""

import array
import ctypes

import enigma
import pytest

GRID, THREADS = (8, 1, 1), (8, 1, 1)


@pytest.fixture
def arrives(fake):
    """(shape, dtype) of each input, and the bytes of the buffers among them, as the library got them."""

    def arrives(*inputs):
        prepared = fake.prepare("k", list(inputs))
        with enigma.profile(record_shapes=True, profile_memory=True) as profiler:
            prepared.dispatch(GRID, THREADS)
        (event,) = profiler.events()
        return event.metadata["input_shapes"], event.input_bytes

    return arrives


def test_buffers(arrives):
    assert arrives(b"abc") == ([((3,), "uint8")], 3)
    assert arrives(bytearray(5), memoryview(b"1234")) == ([((5,), "uint8"), ((4,), "uint8")], 9)
    assert arrives(array.array("d", [1, 2])) == ([((2,), "float64")], 16)
    assert arrives(array.array("h", [1]), array.array("Q", [1])) == ([((1,), "int16"), ((1,), "uint64")], 10)
    assert arrives((ctypes.c_float * 3 * 2)()) == ([((2, 3), "float32")], 24)


def test_scalars_are_passed_by_value(arrives):
    shapes, size = arrives(ctypes.c_int(3), ctypes.c_double(1), ctypes.c_bool(True), ctypes.c_uint8(1))
    assert shapes == [((), "int32"), ((), "float64"), ((), "bool"), ((), "uint8")] and size == 0


def test_a_struct_is_passed_by_value(arrives):
    class Pair(ctypes.Structure):
        _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_float)]

    shapes, size = arrives(Pair(1, 2), (Pair * 2)())
    assert shapes[0][0] == () and shapes[1][0] == (2,) and size == 16


def test_numpy(arrives):
    numpy = pytest.importorskip("numpy")
    square = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
    assert arrives(square) == ([((3, 4), "float32")], 48)
    assert arrives(square.T, square[::2, ::-1]) == ([((4, 3), "float32"), ((2, 4), "float32")], 80)
    assert arrives(numpy.float32(2), numpy.int64(1), numpy.array(3, numpy.uint16), numpy.bool_(True)) == (
        [((), "float32"), ((), "int64"), ((), "uint16"), ((), "bool")], 0)
    assert arrives(numpy.zeros(2, numpy.float16), numpy.zeros(2, numpy.complex64)) == (
        [((2,), "float16"), ((2,), "complex64")], 20)
    read_only = numpy.zeros(3, numpy.int8)
    read_only.flags.writeable = False
    assert arrives(read_only) == ([((3,), "int8")], 3)
    assert arrives(numpy.zeros(2, ">f4"))[0] == [((2,), ">f")]


@pytest.mark.parametrize("value", [1, 1.5, True, 2j, None, "text", object(), [1, 2], int, {}], ids=repr)
def test_what_is_no_input(fake, value):
    with pytest.raises(TypeError, match="input 1"):
        fake.prepare("k", [b"1234", value])


def test_plain_numbers_are_told_what_to_do(fake):
    with pytest.raises(TypeError, match=r"numpy.float32\(x\), ctypes.c_float\(x\)"):
        fake.prepare("k", [1.5])
    with pytest.raises(TypeError, match=r"numpy.int32\(x\), ctypes.c_int\(x\)"):
        fake.prepare("k", [3])


@pytest.mark.parametrize("value", [ctypes.py_object(1), ctypes.c_char_p(b"x"), ctypes.c_void_p(1),
                                   (ctypes.py_object * 2)(1, 2)], ids=["object", "char*", "void*", "objects"])
def test_pointers_of_the_process_are_refused(fake, value):
    with pytest.raises(TypeError, match="pointers"):
        fake.prepare("k", [value])


def test_object_arrays_are_refused(fake):
    numpy = pytest.importorskip("numpy")
    with pytest.raises(TypeError, match="pointers"):
        fake.prepare("k", [numpy.array([1, "a"], dtype=object)])


@pytest.mark.parametrize("inputs", [b"1234", "text", None, 1, {b"1": 1}, memoryview(b"12"), iter([b"1"])], ids=repr)
def test_inputs_must_be_a_list(fake, inputs):
    with pytest.raises(TypeError, match="inputs must be a list"):
        fake.prepare("k", inputs)


def test_an_array_is_not_taken_for_a_list_of_scalars(fake):
    numpy = pytest.importorskip("numpy")
    with pytest.raises(TypeError, match="inputs must be a list"):
        fake.prepare("k", numpy.zeros(4))


@pytest.mark.parametrize("size, result", [(None, None), (0, None), ([], None), (4, bytes(4)), ([4], [bytes(4)]),
                                          ((4, 1), [bytes(4), bytes(1)])], ids=repr)
def test_output_sizes(fake, size, result):
    assert fake.prepare("k", [], size).read_output() == result
    kernel = fake.compile("any", "k")
    assert fake.execute(kernel, [], size, grid=GRID, threads=THREADS) == result


@pytest.mark.parametrize("size, error", [
    (-1, ValueError), (2**70, ValueError), ([4, 0], ValueError), ([-4], ValueError), (True, TypeError), (1.5, TypeError),
    ("4", TypeError), ([True], TypeError), ([1.5], TypeError), ([None], TypeError), ({4}, TypeError)], ids=repr)
def test_wrong_output_sizes(fake, size, error):
    with pytest.raises(error, match="output"):
        fake.prepare("k", [], size)


# ---- DLPack -------------------------------------------------------------------------------------------------------------


class Tensor:
    """DLPack and nothing else, as a tensor library that has no buffer protocol."""

    def __init__(self, array, device=(1, 0), versioned=True):
        self.array, self.device, self.versioned = array, device, versioned
        self.asked = []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        self.asked.append(options)
        if options and not self.versioned:
            raise TypeError("unexpected keyword")
        return self.array.__dlpack__(**options)


@pytest.fixture
def numpy():
    return pytest.importorskip("numpy")


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack(arrives, numpy, versioned):
    source = numpy.arange(24, dtype=numpy.int32).reshape(2, 3, 4)
    tensor = Tensor(source, versioned=versioned)
    assert arrives(tensor) == ([((2, 3, 4), "int32")], 96)
    assert len(tensor.asked) == (1 if versioned else 2)
    assert arrives(Tensor(source[:, ::2, ::-1], versioned=versioned)) == ([((2, 2, 4), "int32")], 64)
    assert arrives(Tensor(numpy.array(2.5))) == ([((), "float64")], 0)
    assert arrives(Tensor(numpy.zeros(3, bool)), Tensor(numpy.zeros(1, numpy.complex128))) == (
        [((3,), "bool"), ((1,), "complex128")], 19)


def test_dlpack_of_another_device_is_refused(fake, numpy):
    with pytest.raises(TypeError, match="copy it to the CPU"):
        fake.prepare("k", [Tensor(numpy.zeros(2), device=(2, 0))])


def test_dlpack_frees_what_it_takes(fake, numpy):
    import sys

    source = numpy.zeros(100)
    before = sys.getrefcount(source)
    for _ in range(50):
        fake.prepare("k", [Tensor(source), Tensor(source[::2])])
        with pytest.raises(TypeError):
            fake.prepare("k", [Tensor(source), None])
    assert sys.getrefcount(source) == before


def test_dlpack_errors_pass_through(fake):
    class Raises:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **options):
            raise BufferError("requires grad")

    class Nonsense(Raises):
        def __dlpack__(self, **options):
            return "no capsule"

    class NoDevice(Raises):
        def __dlpack_device__(self):
            return 5

    with pytest.raises(BufferError, match="requires grad"):
        fake.prepare("k", [Raises()])
    with pytest.raises((TypeError, ValueError)):
        fake.prepare("k", [Nonsense()])
    with pytest.raises(TypeError):
        fake.prepare("k", [NoDevice()])


def test_buffers_are_released(fake):
    source = bytearray(8)
    fake.prepare("k", [source])
    source.append(1)  # BufferError while a view of it is held
    with pytest.raises(TypeError):
        fake.prepare("k", [source, None])
    source.append(1)


def test_changing_the_list_while_it_is_read(fake, numpy):
    inputs = []

    class Clears(Tensor):
        def __dlpack_device__(self):
            inputs.clear()
            return (1, 0)

    inputs += [Clears(numpy.zeros(2)), numpy.zeros(2)]
    fake.prepare("k", inputs)
    assert inputs == []
