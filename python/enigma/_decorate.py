"""Functions that are not plain ones, decorated with a scope: their bodies are timed, not the making of the object."""

import functools
import inspect


def _coroutine(fresh, function):
    async def wrapper(*args, **kwargs):
        with fresh():
            return await function(*args, **kwargs)

    return wrapper


def _generator(fresh, function):
    def wrapper(*args, **kwargs):
        with fresh():
            return (yield from function(*args, **kwargs))

    return wrapper


def _async_generator(fresh, function):
    async def wrapper(*args, **kwargs):
        with fresh():
            inner = function(*args, **kwargs)
            step = inner.__anext__()
            while True:
                try:
                    value = await step
                except StopAsyncIteration:
                    return
                try:
                    sent = yield value
                except GeneratorExit:
                    await inner.aclose()
                    raise
                except BaseException as raised:
                    step = inner.athrow(raised)
                else:
                    step = inner.asend(sent)

    return wrapper


_KINDS = (
    (inspect.iscoroutinefunction, _coroutine),
    (inspect.isgeneratorfunction, _generator),
    (inspect.isasyncgenfunction, _async_generator),
)


def wrap(scope, fresh, function):
    """Return function wrapped in a fresh scope for each call, or None when it is a plain callable."""
    if isinstance(function, staticmethod):
        return staticmethod(scope(function.__func__))
    for matches, make in _KINDS:
        if matches(function):
            return functools.update_wrapper(make(fresh, function), function)
    return None
