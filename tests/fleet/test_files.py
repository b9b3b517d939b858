"""A file is whole or unchanged: every write goes beside its place first, through one function."""

import os
import re
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.fleet.errors import InputError, OutputError
from specfleet.fleet.files import check_folder, check_writable, replacing, write_file
from tests.helpers.processes import ended, start

ROOT = Path(__file__).parents[2]


@settings(max_examples=30)
@given(st.lists(st.one_of(st.binary(), st.text()), min_size=1, max_size=4))
def test_files_have_the_last_content_and_no_leftovers(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes | str]
) -> None:
    folder = tmp_path_factory.mktemp("files")
    for content in contents:
        write_file(folder / "new" / "file", content)
        written = (folder / "new" / "file").read_bytes()
        assert written == (content if isinstance(content, bytes) else content.encode())
    assert [path.name for path in folder.rglob("*")] == ["new", "file"]


PLACES = {  # of every kind, good and bad, below a folder
    "new": "new", "in new folders": "one/two/new", "old": "old", "folder": "a folder", "in a folder": "a folder/new",
    "below a file": "old/new", "far below a file": "old/one/new", "link": "link",
    "link to a folder": "link to a folder", "link to nothing": "link to nothing",
    "link to itself": "link to itself/new", "name as long as it may be": "n" * 255, "name too long": "n" * 256,
    "folder's name too long": f"one/{'n' * 256}/new", "path too long": "/".join(["n" * 200] * 30),
    "root": "/", "in a file system without files": "/proc/new", "device": os.devnull, "zero in its name": "a\0b",
}  # fmt: skip


def filled(folder: Path) -> Path:
    """Return the folder with a file, a folder and links in it."""
    folder.mkdir()
    (folder / "old").write_text("old")
    (folder / "a folder").mkdir()
    (folder / "link").symlink_to("old")
    (folder / "link to a folder").symlink_to("a folder")
    (folder / "link to nothing").symlink_to("to come")
    (folder / "link to itself").symlink_to("link to itself")
    return folder


def state(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, with its content."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def raised(call: Callable[..., None], *arguments: object) -> str | None:
    """Return the error line of a call."""
    try:
        call(*arguments)
    except InputError as error:
        return str(error)
    return None


@pytest.mark.parametrize("kind", [*PLACES, "no name"])
def test_what_a_check_says_beforehand_is_what_writing_does(kind: str, tmp_path: Path) -> None:
    folder = filled(tmp_path / "places")
    place = folder / PLACES[kind] if kind in PLACES else Path()
    before, entries = state(tmp_path), sorted(tmp_path.rglob("*"))
    said = raised(check_writable, place)
    assert (state(tmp_path), sorted(tmp_path.rglob("*"))) == (before, entries), "a check changes nothing"
    failed = raised(write_file, place, "new")
    assert (said is None) == (failed is None), (said, failed)
    assert "\n" not in f"{said}{failed}"
    if failed is None:
        assert place.is_char_device() or place.read_text() == "new"
    else:
        assert state(tmp_path) == before
    assert not list(tmp_path.rglob("*.part"))


def test_folder_checks_predict_whether_writing_succeeds(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for good in (tmp_path, tmp_path / "new" / "newer"):
        check_folder(good)
        write_file(good / "result", "")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "new", "newer", "result", "result"]
    for bad in (tmp_path / "file", tmp_path / "file" / "new", Path("/proc/new")):
        with pytest.raises(InputError, match=str(bad)):
            check_folder(bad)
        with pytest.raises(OutputError, match=str(bad)):
            write_file(bad / "result", "")


def test_links_and_permissions_are_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("file")
    write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    mask = os.umask(0o027)
    try:
        write_file(tmp_path / "fresh", "new")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "fresh").stat().st_mode) == 0o640


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    write_file(tmp_path / "pipe", "through it")
    reader.join()
    assert read == ["through it"]
    assert (tmp_path / "pipe").is_fifo()


def test_full_devices_are_reported_and_kept() -> None:
    check_writable(Path("/dev/full"))
    with pytest.raises(OutputError, match=r"/dev/full: cannot be written \(No space left on device\)$"):
        write_file(Path("/dev/full"), "too much")
    assert Path("/dev/full").is_char_device()


WRITE = """
from pathlib import Path
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import check_writable, write_file
import sys
try:
    check_writable(Path(sys.argv[1]))
    print("checked")
    write_file(Path(sys.argv[1]), bytes(int(sys.argv[2])))
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("largest", "lines"), [(20_000, ["checked", "cannot be written"]), (100, ["cannot be written"])]
)
def test_what_does_not_fit_leaves_the_old_file(largest: int, lines: list[str], tmp_path: Path) -> None:
    """The system's limit of a file's size replaces a full disk: the writes fail in the same place."""
    (tmp_path / "file").write_text("old")
    status, out, err = ended(start("-c", WRITE, tmp_path / "file", "30000", largest_file_bytes=largest))
    assert (status, err) == (0, "")
    for line, expected in zip(out.splitlines(), lines, strict=True):
        assert expected in line
    assert state(tmp_path) == {str(tmp_path / "file"): b"old"}


# All rooms follow the law.

ROOMS = ("fleet", "sim", "engine", "figures", "calibrate", "experiments", "specfleet")
WRITES = re.compile(
    r"\b(write_text|write_bytes|to_(parquet|json|pickle|excel|feather|hdf)|touch|tofile|savetxt|copyfile|copy2|copytree)\("
    r"|\b(mkstemp|NamedTemporaryFile|save_file|ParquetWriter|hardlink_to|symlink_to|mkdir|makedirs|unlink|rmtree)\("
    r"|\b(os|shutil|path|draft)\.(copy|move|rename|replace|remove)\("
    r"|\bopen\([^)]*[\"'][rbt]*[wax+][bt+]*[\"']"
    r"|\b(savefig|savez|savez_compressed|write_table|dump)\((?!.*\bcontent\b)"  # content is in memory
    r"|\bto_csv\((?!index)|\bsave_pretrained\("
)
FREE = {  # the function itself; locks and sockets, which have no content
    "fleet/files.py", "engine/node/worker.py", "engine/net/addresses.py", "sim/fast/compiled.py",
}  # fmt: skip
FINE = {
    "json.dump(measure(), sys.stdout, indent=2)",
    'nowhere.open("w")',  # os.devnull
    "model.half().save_pretrained(draft)",  # into a temporary folder
    "tokenizer.save_pretrained(draft)",
    "...     _ = answer.write_text(counts)",  # an example in a docstring
    "pq.ParquetWriter(file, SCHEMA",
    "self.file.write_table(rows)",  # into a file of `replacing`
}


def test_nothing_writes_a_file_but_the_one_function() -> None:
    modules = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    assert len(modules) > 200
    found = [
        f"{path}: {line}"
        for path in modules
        if str(path.relative_to(ROOT)) not in FREE
        for line in path.read_text().splitlines()
        if WRITES.search(line) and "/fast/" not in str(path) and not any(fine in line for fine in FINE)
    ]
    assert found == []


def test_the_law_sees_a_writer() -> None:
    for line in (
        "Path('x').write_text('')", "open('x', 'w')", "Path('x').open('xb')", "open('x', mode='a')",
        "frame.to_csv('x')", "figure.savefig('x')", "np.savez(path, a=1)", "pq.write_table(table, path)",
        "json.dump(1, file)", "os.replace('a', 'b')", "shutil.copy('a', 'b')", "model.save_pretrained('x')",
        "folder.mkdir()",
    ):  # fmt: skip
        assert WRITES.search(line), line
    assert not any(map(WRITES.search, ("np.savez(content)", "open('y', 'rb')", "text.replace('a', 'b')")))


@pytest.fixture
def heard() -> Iterator[None]:
    """Send Ctrl-C, also if these tests run in the background of a shell, where programs ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize(
    ("what", "call"),
    [
        *(("write", call) for call in ("open", "fsync", "close")),
        *(("probe", call) for call in ("open", "close")),
    ],
)
def test_signals_leave_a_whole_file_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, call: str
) -> None:
    """The signal is handled right after the interrupted call, as far as the file allows."""
    real, came = getattr(os, call), []

    def calls(*arguments: Any, **options: Any) -> Any:
        result = real(*arguments, **options)
        if not came:
            came.append(call)
            signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(f"specfleet.fleet.files.os.{call}", calls)
    out = tmp_path / "out.json"
    act = (lambda: write_file(out, "whole")) if what == "write" else (lambda: check_writable(out))
    with pytest.raises(KeyboardInterrupt):
        act()
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == (["out.json"] if what == "write" else [])
    assert what == "probe" or out.read_text() == "whole"


def test_work_that_fails_leaves_the_earlier_file(tmp_path: Path) -> None:
    write_file(tmp_path / "out", "earlier")
    for error in (KeyboardInterrupt, ValueError, OSError):
        with pytest.raises(OutputError if error is OSError else error), replacing(tmp_path / "out") as file:  # noqa: PT012
            file.write(b"half" * 10_000)
            raise error
        assert state(tmp_path) == {str(tmp_path / "out"): b"earlier"}


def test_a_new_folder_has_no_files_name(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"page.html: is a file's name; name a folder for the results, of which .*FOLDER"
    ):
        check_folder(tmp_path / "page.html")
