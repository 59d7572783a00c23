from collections.abc import Callable, Sequence
from typing import Any


class Error(RuntimeError):
    pass

class InvalidArgument(Error, ValueError):
    pass

class NotSupported(Error):
    pass

class TimedOut(Error, TimeoutError):
    pass

class DeviceError(Error):
    pass

class KernelError(Error):
    pass

class RemoteError(Error):
    pass

class Capability:
    """
    Whether something is there, and why or why not; true or false where a condition is asked for.
    """

    @property
    def available(self) -> bool: ...

    @property
    def reason(self) -> str: ...

    def __bool__(self) -> bool: ...

    def __repr__(self) -> str: ...

class Team:
    """
    Ranks that a kernel names by their number in the team: `rank` is this one's, of `size`.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def inner(self, factor: int) -> Team:
        """
        The `factor` neighbors that this rank is among, of a team that they divide evenly.
        """

    def outer(self, factor: int) -> Team:
        """The ranks with this one's place among their `factor` neighbors."""

    def world_rank(self, member: int) -> int:
        """The rank of a member in the communicator."""

    def __repr__(self) -> str: ...

class Bootstrap:
    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def interrupt(self, why: str) -> None: ...

def thread_bootstraps(size: int) -> list[Bootstrap]: ...

def environment_bootstrap(limit: float | None = None) -> Bootstrap: ...

def launched_by_environment() -> bool: ...

def all_gather_bootstrap(rank: int, size: int, all_gather: Callable, limit: float | None = None) -> Bootstrap: ...

def tcp_bootstrap(id: str, rank: int, size: int, limit: float | None = None) -> Bootstrap: ...

def create_unique_id(host: str = '127.0.0.1', port: int = 0) -> str: ...

def wanted_ranks(ranks: int) -> int: ...

def device_count() -> int: ...

def provide_devices(count: int) -> None: ...

class Communicator:
    """
    Ranks that share memory and run kernels together, as `connect` and `run_ranks` make it. A context manager: left by an exception, it tells the other ranks why. Methods called *collective* are called by all ranks, in the same order.
    """

    def __init__(self, bootstrap: Bootstrap, *, limit: float | None = None, kernel_timeout: float | None = None, device: int = -1, lsa_size: int = 0, check_launch: bool = False) -> None: ...

    @property
    def rank(self) -> int:
        """This process's or thread's, from 0."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    @property
    def device(self) -> int:
        """The rank's GPU, by its number in this process."""

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""

    @property
    def world(self) -> Team:
        """All ranks."""

    @property
    def lsa(self) -> Team:
        """The ranks whose memory this one's kernels load and store (LSA)."""

    @property
    def rail(self) -> Team:
        """The ranks with this one's place in their LSA teams."""

    @property
    def lsa_ranks(self) -> list[int]:
        """The members of the LSA team, as ranks of this communicator."""

    @property
    def properties(self) -> dict[str, Any]:
        """
        What ranks and devices can do: `Capability` by name, and the device's name.
        """

    @property
    def aborted(self) -> bool:
        """Whether `abort` has been called, or a rank has ended."""

    def barrier(self) -> None:
        """
        Waits for all ranks, on the host alone: kernels may still run. *Collective*.
        """

    def all_gather(self, mine: bytes) -> list[bytes]:
        """The bytes of all ranks, of which each has as many. *Collective*."""

    def check(self) -> None:
        """
        Raises what went wrong in kernels since the last time, or on another rank.
        """

    def abort(self) -> None:
        """
        Ends the waits of this rank's kernels and of all ranks on the host. From any thread.
        """

    def split(self, color: int, key: int = 0) -> Communicator:
        """
        A communicator of the ranks with the same color, ordered by key and rank; a negative color takes no part. *Collective*.
        """

    def close(self) -> None:
        """Ends it here. What was made of it stays as long as it is used."""

    def __enter__(self) -> Communicator: ...

    def __exit__(self, arg0: object | None, arg1: object | None, arg2: object | None, /) -> None: ...

    def synchronize(self, stream: object | None = None) -> None:
        """Waits for the device, or for a stream of it."""

    def requirements(self) -> Requirements:
        """Empty ones, to be filled."""

    def create_device_comm(self, requirements: Requirements) -> DeviceCommunicator:
        """Resources for kernels; the same on all ranks. *Collective*."""

    def empty(self, shape: int | Sequence[int], dtype: Any = 'float32', *, name: str = '', place: str = 'device', multimem: str = 'none') -> SymmetricArray:
        """
        A symmetric array of zeros; of the same number of bytes on all ranks. `place` is 'device' or 'pinned_host'. `multimem` asks for NVLink multicast: 'required', 'or_software' or 'none'. *Collective*.
        """

    def register(self, array: Any, *, name: str = '') -> SymmetricArray:
        """
        A symmetric array over a GPU's memory that another library allocated, which stays alive as long. *Collective*.
        """

    def pool(self) -> Any:
        """Memory for `torch.cuda.use_mem_pool`, as `devcomm.torch.pool`."""

    def prepare(self, *args) -> None:
        """
        Loads kernels and modules of kernels on the device, before the first launch that waits for peers. *Collective*.
        """

    def device_pointer(self, array: Any) -> int:
        """
        The address of an array, for pointers in structures. It stays where it is until the kernel has ended.
        """

class Handle:
    """
    What a kernel takes by value for a feature that `Requirements` asked for.
    """

    @property
    def type(self) -> str:
        """In C++."""

    def __bytes__(self) -> bytes: ...

    def __repr__(self) -> str: ...

class Requirements:
    """
    What kernels need of a device communicator: the same on all ranks. Methods that begin with `add` return the handle that a kernel takes; the others return the requirements.
    """

    def lsa_barriers(self, count: int) -> Requirements:
        """
        Barriers of the LSA team that sessions name by index; usually one a block.
        """

    def whole_world(self) -> Requirements:
        """Refuses ranks that cannot all load and store each other's memory."""

    def multimem(self, policy: str = 'or_software') -> Requirements:
        """
        Memory of the communicator's own for multimem: 'required' or 'or_software'.
        """

    def tracing(self, blocks: int, spans: int, warps: int = 1) -> Requirements:
        """
        Room for a trace: so many spans of each of `warps` warps of each block.
        """

    def add_lsa_barriers(self, count: int, team: Team | None = None) -> Handle:
        """Barriers of a part of the LSA team."""

    def add_multimem_barriers(self, count: int) -> Handle:
        """Barriers of the LSA team by multimem."""

    def add_signals(self, count: int, team: Team | None = None) -> Handle:
        """64-bit words on each rank that its peers add to and it waits for."""

    def add_mailboxes(self, protocol: str, count: int, packets: int, team: Team | None = None) -> Handle:
        """
        Mailboxes for packet sessions, usually one a block, with room for so many packets from each member. `protocol` is 'll', 'lamport' or 'll128'.
        """

    def add_ll_slots(self, count: int, slots: int, value_bytes: int = 8, team: Team | None = None) -> Handle:
        """Slots of LL all-to-all sessions."""

    def add_fifos(self, protocol: str, count: int, team: Team | None = None, packs: int | None = None, slots: int = 4) -> Handle:
        """
        FIFOs into each rank and out of it. `protocol` is 'simple', 'll' or 'll128'; a slot holds `packs` packs of 16 bytes.
        """

    def add_network_fifos(self, count: int, *, contexts: int = 1, signals: int = 0, counters: int = 0, depth: int = 256, barriers: int = 0, packs: int = 8192, slots: int = 4) -> Handle:
        """FIFOs over the network."""

    def add_gin_contexts(self, count: int = 1, signals: int = 0, counters: int = 0, depth: int = 256, barriers: int = 0) -> Handle:
        """
        Contexts of GPU-initiated networking, each with so many signals, counters and barriers, and a queue of `depth` operations.
        """

    def add_connections(self, stripes: int, team: Team | None = None, slots: int = 4, slot_bytes: int = 65536) -> Handle:
        """
        Connections for groups of sends and receives, with so many stripes, usually one a block.
        """

    def add_buffer(self, count: int, dtype: object) -> Handle:
        """Memory of the communicator's own, on every rank."""

    @property
    def nbytes(self) -> int:
        """Memory that they take on each rank."""

class DeviceCommunicator:
    """What kernels take as `device_comm`, with the resources that they need."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def network(self) -> Capability:
        """How its contexts reach other ranks."""

    def check(self) -> None:
        """Raises what went wrong in its kernels since the last time."""

    def failures(self) -> list[str]:
        """What went wrong in its kernels, a text each."""

    def kernel_argument(self) -> bytes:
        """The bytes of the structure, for other ways to launch."""

class SymmetricArray:
    """
    A contiguous array of which every rank has one, and which kernels reach on all of them. By DLPack and the array interfaces other libraries see it without a copy.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def ndim(self) -> int: ...

    @property
    def size(self) -> int:
        """Number of elements."""

    @property
    def nbytes(self) -> int: ...

    @property
    def dtype(self) -> str:
        """As a word, such as 'float32'."""

    @property
    def data_ptr(self) -> int:
        """Address of the first element."""

    @property
    def offset(self) -> int:
        """Bytes from the start of its window."""

    @property
    def name(self) -> str:
        """Of the window, in reports."""

    @property
    def handle_type(self) -> str:
        """How the memory is shared with other processes."""

    @property
    def multimem(self) -> Capability:
        """Whether NVLink multicast reaches it, and why not."""

    @property
    def rank(self) -> int:
        """Whose part it is."""

    def get(self) -> Any:
        """A copy as numpy's, when the device has become idle."""

    def set(self, values: Any) -> None:
        """
        Copies what numpy can make an array of the same shape and type of, when the device has become idle.
        """

    def peer(self, rank: int) -> SymmetricArray:
        """
        The same array on another rank of the LSA team. Nobody frees it while it is used here.
        """

    def kernel_argument(self) -> bytes:
        """The bytes of its `sym_ptr`, for other ways to launch."""

    def reshape(self, shape: object) -> SymmetricArray:
        """The same elements in another shape."""

    def view(self, dtype: object) -> SymmetricArray:
        """The same memory as elements of another type."""

    def __getitem__(self, part: slice) -> SymmetricArray:
        """A contiguous part along the first axis: `array[begin:end]`."""

    def __len__(self) -> int: ...

    def __dlpack__(self, **kwargs) -> object: ...

    def __dlpack_device__(self) -> object: ...

    @property
    def __array_interface__(self) -> dict: ...

    @property
    def __cuda_array_interface__(self) -> dict: ...

    def __repr__(self) -> str: ...

class ArrayFacts:
    """
    Address, shape and type of an array. Kernels accept it in place of the array, which the caller keeps alive.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...

    @property
    def elements(self) -> int: ...

    def is_like(self, arg: ArrayFacts, /) -> bool: ...

    def overlaps(self, arg: ArrayFacts, /) -> bool: ...

    @property
    def bytes(self) -> int: ...

    @property
    def on_host(self) -> bool: ...

    @property
    def read_only(self) -> bool: ...

    @property
    def data(self) -> int: ...

def array_facts(array: object, call: str) -> ArrayFacts: ...

def element_bytes(dtype: object) -> int: ...

def type_name(dtype: object) -> str: ...

class Launch:
    """A kernel with its shape: called with the arguments, it is launched."""

    def __call__(self, *args) -> None: ...

class Kernel:
    """A `__global__` function of a compiled source."""

    @property
    def name(self) -> str:
        """As the source or the caller has it."""

    @property
    def parameters(self) -> list[str]:
        """Their types in C++."""

    def __repr__(self) -> str: ...

    def load(self, device: int) -> None:
        """
        Loads it on the device, which its first launch does otherwise: that waits for kernels that run there.
        """

    def __call__(self, grid: object, block: object, stream: object | None = None, *, shared_bytes: int = 0, cluster: object = 1, cooperative: bool = False, dependent: bool = False) -> Launch:
        """
        The kernel with a grid and blocks, numbers or tuples; `stream` is torch's, CuPy's, cuda.core's or a handle. `dependent`: it may start while the one before it in the stream ends.
        """

class AllReducePlan:
    @property
    def algorithm(self) -> str: ...

    @property
    def protocol(self) -> str: ...

    @property
    def blocks(self) -> int: ...

    @property
    def threads(self) -> int: ...

    @property
    def microseconds(self) -> float: ...

    @property
    def why(self) -> str: ...

def plan_all_reduce(bytes: int, ranks: int, max_blocks: int, lamport: bool, ll128: bool) -> AllReducePlan: ...

def load(library: object, kernels: Sequence[tuple[str, str, str]]) -> list: ...

backend: str = 'simulator'

layout_version: int = 13

def architecture(device: int) -> str: ...

def race_reports() -> int: ...

def last_race() -> str: ...

def clear_races() -> None: ...

def set_race_exit_status(status: int) -> None: ...

def last_failure() -> str: ...

def clear_failure() -> None: ...

def set_seed(seed: int) -> None: ...

def set_schedule(schedule: str) -> None: ...

def set_store_delay(steps: int) -> None: ...

class OrderCell:
    def __init__(self) -> None: ...

def hand_over(cell: OrderCell) -> None: ...

def take_over(cell: OrderCell) -> None: ...
