"""Two threads that read the same kind of answer for the first time: one of them used to end the process."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, threading, types
from hdcos.api.bodies import read_json
sys.setswitchinterval(1e-6)
fields = "".join(f"    f{i}: int | None = None\\n" for i in range(40))
source = "from __future__ import annotations\\nimport msgspec\\nclass Part(msgspec.Struct):\\n" + fields
source += "class Whole(msgspec.Struct):\\n    one: Part\\n    more: list[Part]\\n"
for number in range(300):
    module = sys.modules[f"kinds{number}"] = types.ModuleType(f"kinds{number}")
    exec(source, module.__dict__)
    ready = threading.Barrier(2)

    def read():
        ready.wait()
        assert read_json(module.Whole, b'{"one": {"f1": 1}, "more": [{"f3": 2}]}').more[0].f3 == 2

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("done")
"""


def test_a_type_is_read_for_the_first_time_by_two_threads_at_once() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr[-500:]
