# SPDX-License-Identifier: BSD-2-Clause
"""The site's generated pages have all that their sources have. `make docs` builds the site."""

import ctypes
import enum
import inspect
import re

import pytest

import peerdma
from peerdma import regs, testing, uapi
from tools.site import api, pages, registers, requests
from tools.site.links import wrong_links

BLOCKS = [(bar, block) for bar, blocks in registers.BLOCKS.items() for block in blocks]


def rows(page: str, *cells: str) -> list[list[str]]:
    """The rows of tables in a page that have all these cells."""
    found = [line[2:-2].split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return [row for row in found if all(any(cell in each for each in row) for cell in cells)]


def words(text: str) -> list[str]:
    """What a reader reads of Markdown, but for signs."""
    return re.findall(r"\w+", re.sub(r"\]\([^)]*\)|\\", "", text))


def test_the_pages_have_every_block_of_the_map():
    blocks = {id(each) for each in vars(regs).values() if isinstance(each, regs.Block)}
    assert blocks == {id(block) for _, block in BLOCKS}


@pytest.mark.parametrize(("bar", "block"), BLOCKS, ids=lambda each: getattr(each, "name", each))
def test_every_register_has_its_address_access_and_description(bar, block):
    made = registers.pages()
    name = block.name.replace("_", "-")
    page = made[f"registers-{name}.md"]
    for register in block.registers:
        anchor = f"{name}-{register.name.replace('_', '-')}"
        _, _, section = page.partition(f"({anchor})=\n## {register.name}\n")
        section, _, _ = section.partition("\n## ")
        first = block.base + register.offset
        assert f"`{first:#06x}`" in section
        ((offset, _, access, doc),) = rows(page, f"(#{anchor})", f"`{register.offset:#04x}`")
        assert (offset, access) == (f"`{register.offset:#04x}`", register.access.value)
        assert words(doc) == words(register.doc)
        assert rows(made["registers.md"], f"`{first:#06x}`", f"registers-{name}.md#{anchor}")
        for field in register.fields:
            last = field.lsb + field.width - 1
            bits = str(last) if field.width == 1 else f"{last}:{field.lsb}"
            found = rows(section, f"`{field.name}`", f"#{anchor}-{field.name.replace('_', '-')}}}")
            assert [each[0] for each in found] == [bits]


def test_registers_of_card_to_host_channels_have_their_own_addresses():
    index = registers.pages()["registers.md"]
    control = regs.C2H_CHANNEL_BASE + regs.CHANNEL["control"].offset
    assert rows(index, f"`{control:#06x}`", "`channel.control`", "C2H")


def test_values_of_registers_have_their_comments():
    index = registers.pages()["registers.md"]
    assert rows(index, "10", "`WRITE_DROPPED`", "by the PCIe block")
    assert rows(index, "9", "`READ_UNSUPPORTED`", "not at all")
    assert rows(index, "7", "`USER_OUTPUT`", regs.WaitsFor.USER_OUTPUT.text)


def test_the_page_of_requests_has_all_of_the_driver_s_interface():
    page = requests.pages()["requests.md"]
    header = "".join(path.read_text() for path in requests.HEADERS)
    for request in uapi.Ioctl:
        assert rows(page, f"`PEERDMA_IOC_{request.name}`", f"`{request.value:#010x}`")
    names = set(re.findall(r"^#define (PEERDMA_IOC_\w+)\t", header, flags=re.MULTILINE))
    assert names - {"PEERDMA_IOC_MAGIC"} == {f"PEERDMA_IOC_{each.name}" for each in uapi.Ioctl}
    for name, bit in re.findall(r"^#define (\w+)\t+\(1 << (\d+)\)", header, flags=re.MULTILINE):
        ((_, found, _),) = rows(page, f"`{name}`", f"#{name.lower().replace('_', '-')}}}")
        assert found == bit
    assert rows(page, "`PEERDMA_IOC_LED`", "a bit for each LED")
    for number in ("ENOTTY", "EPERM"):
        assert rows(page, f"[`{number}`]")
    assert "the driver does not know this request" in rows(page, "`ENOTTY`")[0][1]


@pytest.mark.parametrize(
    "mirror",
    [each for each in vars(uapi).values()
     if inspect.isclass(each) and (each.__doc__ or "").startswith(("struct peer", "enum peer"))],
    ids=lambda mirror: mirror.__name__,
)  # fmt: skip
def test_the_page_of_requests_describes_every_member(mirror):
    page = requests.pages()["requests.md"]
    kind, _, name = mirror.__doc__.partition(" ")
    anchor = f"{kind}-{name.replace('_', '-')}"
    _, _, section = page.partition(f"({anchor})=\n### {kind}")
    section, _, _ = section.partition("\n### ")
    if issubclass(mirror, enum.IntEnum):
        assert [row[0] for row in rows(section, "`PEERDMA_")] == [
            str(each.value) for each in mirror
        ]
        return
    for member, *_ in mirror._fields_:
        place = getattr(mirror, member)
        ((offset, size, _, doc),) = rows(section, f"#{anchor}-{member.replace('_', '-')}}}")
        assert (offset, size) == (str(place.offset), str(place.size))
        assert doc
    assert f"{ctypes.sizeof(mirror)} bytes" in section


def test_a_comment_in_a_header_that_is_not_understood_is_named():
    with pytest.raises(ValueError, match="described by: union x - y"):
        requests.comments("/**\n * union x - y\n */\n")


def test_the_api_page_has_every_public_name():
    page = api.pages()["api.md"]
    names = {f"peerdma.{name}" for name in peerdma.__all__ if not name.startswith("__")}
    names |= {f"peerdma.testing.{name}" for name in testing.__all__}
    assert sorted(re.findall(r"^\.\. auto\w+:: (\S+)", page, flags=re.MULTILINE)) == sorted(names)


def test_every_document_is_in_the_list_and_so_in_the_navigation():
    listed = [page for part in pages.navigation().values() for page in part]
    found = {str(path.relative_to(pages.ROOT)) for path in (pages.ROOT / "docs").rglob("*.md")}
    assert len(set(listed)) == len(listed)
    assert {page for page in listed if page.startswith("docs/")} == found - {"docs/README.md"}


def test_documents_are_collected_as_they_are(tmp_path):
    pages.collect(tmp_path)
    name = "docs/gateware.md"
    assert (tmp_path / name).read_text() == (pages.ROOT / name).read_text()
    start, readme = ((folder / "README.md").read_text() for folder in (tmp_path, pages.ROOT))
    # But for links to Markdown that is no page.
    links = re.compile(r"\]\([^)]*\)")
    assert links.sub("", start).startswith(links.sub("", readme))
    assert "](path:sim/wheels/README.md)" in start
    assert "reference/registers.md" in start
    assert (tmp_path / "host/examples/stream.py").is_file()
    assert "](path:.github/ISSUE_TEMPLATE/" in (tmp_path / "CONTRIBUTING.md").read_text()


def test_links_that_lead_nowhere_and_loads_from_elsewhere_are_found(tmp_path):
    good = '<a href="#x" id="x"><a href="b.html#y%20z"><a href="https://a.b"><img src="data:,">'
    (tmp_path / "a.html").write_text(good)
    (tmp_path / "b.html").write_text('<p id="y z">')
    assert not list(wrong_links(tmp_path))
    bad = (
        '<a href="c.html"><a href="b.html#w"><a href="#w"><script src="https://a.b/c.js"></script>'
    )
    (tmp_path / "a.html").write_text(good + bad)
    (tmp_path / "s.css").write_text("p { background: url('//a.b/f.woff') }")
    assert [line.split()[-1] for line in wrong_links(tmp_path)] == [
        "there", "anchor", "anchor", "https://a.b/c.js", "//a.b/f.woff"
    ]  # fmt: skip
