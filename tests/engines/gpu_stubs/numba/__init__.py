"""Replaces numba, which `scripts/gpu pack` omits: functions stay plain Python."""


def jit(*arguments, **options):
    return arguments[0] if arguments and callable(arguments[0]) else lambda function: function


njit = vectorize = guvectorize = jit
prange, __version__ = range, "0.65.0"


def get_num_threads():
    return 1


def set_num_threads(count):
    pass


class _Type:
    def __getitem__(self, key):
        return self

    def __call__(self, *arguments, **options):
        return self


int32 = int64 = float32 = float64 = boolean = void = types = _Type()
