"""Good and bad uses of tasks: a comment says what mypy must say of the next line."""

from typing import Any, assert_type

import duly

app = duly.App("shop")


@app.task(tier="regular", delay_tolerance="5m", max_attempts=3)
def encode(path: str, height: int = 720) -> str:
    return f"{path}@{height}"


@app.task
async def count(text: str) -> int:
    return len(text)


@app.task
def tidy() -> None:
    pass


assert_type(encode("a.mp4", height=720), str)
assert_type(encode.submit("a.mp4", height=720), duly.Handle[str])
assert_type(encode.submit("a.mp4").result(timeout=60), str)
assert_type(count.submit("x").result(), int)
assert_type(encode.options(priority=3).submit("a", 1), duly.Handle[str])
assert_type(encode.submit_many([("a.mp4", 720), {"path": "b"}]), list[duly.Handle[str]])
assert_type(encode.map(["a", "b"], [1, 2]), list[duly.Handle[str]])
assert_type(encode.handle("7").result(), str)
assert_type(duly.wait([encode.submit("a")]).done, list[duly.Handle[Any]])

# error: Argument 1 to "__call__" of "Task" has incompatible type "int"; expected "str"
encode(720)
# error: Argument 2 to "submit" of "Task" has incompatible type "str"; expected "int"
encode.submit("a.mp4", "720")
# error: Missing positional argument "path" in call to "submit" of "Task"
encode.submit()
# error: Unexpected keyword argument "width" for "submit" of "Task"
encode.submit("a.mp4", width=3)
# error: Argument 1 to "submit" of "Task" has incompatible type "int"; expected "str"
count.submit(3)
# error: Unexpected keyword argument "tiers" for "options" of "Task"
encode.options(tiers="basic")
# error: Too many arguments for "submit" of "Task"
tidy.submit(1)

with app.graph("nightly") as graph:
    encoded = encode.node("a.mp4")
    assert_type(encoded, duly.Node[str])
    counted = count.node(encoded.result)
    # error: Argument 1 to "node" of "Task" has incompatible type "int"; expected "str"
    count.node(counted.result)

count.submit(encode.submit("a").as_argument())
# error: Argument 1 to "submit" of "Task" has incompatible type "int"; expected "str"
count.submit(count.submit("a").as_argument())


@app.task
def parent(path: str) -> int:
    context = duly.context()
    assert_type(context.submit(encode, path, height=3), duly.Handle[str])
    # error: Argument 2 to "submit" of "Context" has incompatible type "int"; expected "str"
    context.submit(encode, 3)
    assert_type(context.stage("size", lambda: 3), int)
    # error: Incompatible return value type (got "str", expected "int")
    return context.once("charge", lambda: "x")


async def main() -> None:
    # error: Value of type "Coroutine[Any, Any, int]" must be used
    count("x")
    assert_type(await count("x"), int)
    handle = await encode.submit_async("a", height=1)
    assert_type(await handle.result_async(), str)
    # error: Argument "height" to "submit_async" of "Task" has incompatible type "str"
    await encode.submit_async("a", height="1")
