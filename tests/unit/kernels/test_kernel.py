"""Kernels: who imports Numba, and where compiled code goes."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from milepost.kernels import compiled, folder, kept, warm
from milepost.kernels.kernel import KERNELS, ROOMS, kernel


def test_nobody_imports_numba_before_it_is_needed() -> None:
    asked = "import milepost, milepost.kernels, sys; milepost.kernels.compiled(); sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked], check=False).returncode == 0


def test_all_kernels_are_made() -> None:
    warm()
    assert compiled()
    from milepost.kernels import kernel as module

    assert set(KERNELS) <= set(module._made)


def test_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tmp_path / "milepost" / "kernels" in folder("match").parents
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "chosen"))
    assert folder("match").parent == tmp_path / "chosen"


def test_a_folder_that_cannot_be_written_is_no_obstacle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    warm()  # or else the kernels that `doubled` pretends to be one of are compiled there too, which takes long
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "inside"))

    def doubled(value: int) -> int:
        return 2 * value

    doubled.__module__ = "milepost.match.probe"

    assert kernel("i8(i8)")(doubled)(21) == 42


def test_kernels_that_could_not_be_kept_are_not_said_to_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on a full disk: some of them were compiled for this process only."""
    from milepost.kernels import kernel as module

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    for room in ROOMS:
        folder(room).mkdir(parents=True)
    monkeypatch.setattr(module, "_unkept", ["probe"])
    warm()
    assert not kept()
    monkeypatch.setattr(module, "_unkept", [])
    warm()
    assert kept()


THREADS = """
import sys, threading
from importlib import import_module
from milepost.kernels import at_hand

first, usual_cache = sys.argv[1:]
begin, modules = threading.Barrier(3), []


def matching():
    begin.wait()
    for name in ("decoder", "builder", "probe", "assembly"):
        import_module(f"milepost.match.{name}")


def native():
    begin.wait()
    modules.append(at_hand("batch", "native"))


sys.setswitchinterval(1e-5)  # so that they get in each other's way
if first == "numba":  # whose import, if it is still to come, keeps one of them waiting
    import numba
threads = [threading.Thread(target=work) for work in (matching, native, native)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
import numba

assert numba.config.CACHE_DIR == usual_cache, numba.config.CACHE_DIR
assert all(module is not None and module.judge for module in modules)
"""


@pytest.mark.parametrize("first", ["numba", "nothing"])
def test_threads_that_make_kernels_at_once_do_not_wait_for_each_other_for_ever(first: str) -> None:
    warm()  # what is kept is loaded; that is what a broker's threads do
    import numba

    subprocess.run([sys.executable, "-c", THREADS, first, numba.config.CACHE_DIR], check=True, timeout=300)


ELSEWHERE = """
import sys
from pathlib import Path
from milepost import kernels

usual = kernels.home()
assert kernels.at_hand("match", "assembly") is None  # nothing is kept there, and nobody compiles
with kernels.kept_in(Path(sys.argv[1])):
    kernels.warm()
assert kernels.home() == usual
assert kernels.loaded() and not kernels.kept()
assert kernels.at_hand("match", "assembly").regroup
"""


def test_kernels_are_loaded_from_another_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As those are that a process beside the broker has compiled where the usual folder cannot be written."""
    warm()
    place = str(folder("match").parent)
    (tmp_path / "file").touch()
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    subprocess.run([sys.executable, "-c", ELSEWHERE, place], check=True, timeout=300)


def test_a_process_waits_for_another_that_compiles_into_the_same_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    with (tmp_path / "compiling").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, "-c", "from milepost.kernels import kernel\nwith kernel._alone(): print('alone')"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            while not _waits_for_a_lock(process.pid):
                assert process.poll() is None
            lock.close()
            assert process.stdout.read() == "alone\n"


def _waits_for_a_lock(pid: int) -> bool:
    waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" in line]
    return any(str(pid) in words for words in waiting)


def test_what_another_kind_of_processor_has_compiled_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba does not load it: an image that was made elsewhere would compile in the broker's own process."""
    from milepost.kernels import kernel as module

    warm()
    assert kept()
    monkeypatch.setattr(module, "_processor", lambda: "another one")
    assert not kept()


def test_a_file_system_without_locks_is_no_obstacle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    warm()
