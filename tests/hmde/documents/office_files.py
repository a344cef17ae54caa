"""Small files of all kinds that are no plain text, made without the libraries that read them."""

from __future__ import annotations

import zipfile
from pathlib import Path


def write_pdf(path: Path, pages: list[list[str]], title: str = "", trailer: str = "", bookmark: str = "") -> None:
    """A PDF of lines of text; a page without lines holds nothing.

    Args:
        bookmark: of the first page.
        trailer: more entries of the trailer, such as `/Encrypt << ... >>`.
    """
    numbers = range(len(pages))
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R /Outlines {5 + 2 * len(pages)} 0 R >>",
        f"<< /Type /Pages /Kids [{' '.join(f'{5 + 2 * page} 0 R' for page in numbers)}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        f"<< /Title ({title}) >>",
    ]
    for page, lines in enumerate(pages):
        shown = " ".join(f"({line}) Tj 0 -20 Td" for line in lines)
        content = f"BT /F 12 Tf 50 700 Td {shown} ET"
        resources = "/Resources << /Font << /F 3 0 R >> >>"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] {resources} /Contents {6 + 2 * page} 0 R >>"
        )
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    first = f"{len(objects) + 2} 0 R"
    objects.append(f"<< /First {first} /Last {first} /Count 1 >>" if bookmark else "<< >>")
    objects.append(f"<< /Title ({bookmark}) /Parent {len(objects)} 0 R /Dest [5 0 R /Fit] >>")
    body, offsets = "%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    end = f"trailer\n<< /Size {size} /Root 1 0 R /Info 4 0 R {trailer} >>\nstartxref\n{len(body)}\n%%EOF\n"
    path.write_bytes(f"{body}xref\n0 {size}\n0000000000 65535 f \n{table}{end}".encode("latin-1"))


def write_zip(path: Path, files: dict[str, str]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def write_docx(path: Path, paragraphs: list[str], cell: str, box: str = "") -> None:
    """A DOCX of paragraphs and a table of one cell.

    Args:
        box: text of a box in the first paragraph, which Word writes twice: for itself and for old programs.
    """
    types = "http://schemas.openxmlformats.org/package/2006/content-types"
    relations = "http://schemas.openxmlformats.org/package/2006/relationships"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    texts = [f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in [*paragraphs, cell]]
    if box:
        content = f"<w:txbxContent><w:p><w:r><w:t>{box}</w:t></w:r></w:p></w:txbxContent>"
        kinds = f"<mc:Choice>{content}</mc:Choice><mc:Fallback>{content}</mc:Fallback>"
        compatibility = "http://schemas.openxmlformats.org/markup-compatibility/2006"
        both = f'<mc:AlternateContent xmlns:mc="{compatibility}">{kinds}</mc:AlternateContent>'
        texts[0] = texts[0].replace("</w:p>", f"<w:r>{both}</w:r></w:p>")
    table = f"<w:tbl><w:tr><w:tc>{texts.pop()}</w:tc></w:tr></w:tbl>"
    write_zip(
        path,
        {
            "[Content_Types].xml": f'<Types xmlns="{types}"><Default Extension="rels" ContentType="application/vnd.'
            'openxmlformats-package.relationships+xml"/><Override PartName="/word/document.xml" '
            f'ContentType="{main}"/></Types>',
            "_rels/.rels": f'<Relationships xmlns="{relations}"><Relationship Id="r1" Type="{office}" '
            'Target="word/document.xml"/></Relationships>',
            "word/document.xml": f'<w:document xmlns:w="{word}"><w:body>{"".join(texts)}{table}</w:body></w:document>',
        },
    )


def write_pptx(path: Path, slides: list[str], title: str) -> None:
    """A PPTX of slides of one paragraph, each with notes of its speaker and a chart of one category."""
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    relation = '<Relationship Id="r{0}" Type="{1}/{2}" Target="{3}"/>'

    def relations(*targets: tuple[str, str]) -> str:
        entries = (relation.format(number, office, *target) for number, target in enumerate(targets))
        return f"<Relationships xmlns='x'>{''.join(entries)}</Relationships>"

    def drawn(text: str) -> str:
        number = '<a:fld type="slidenum"><a:t>7</a:t></a:fld>'
        return f'<s xmlns:a="a"><a:p><a:r><a:t>{text}</a:t></a:r>{number}</a:p></s>'

    ids = "".join(f'<sldId id="{256 + number}" r:id="r{number}"/>' for number in range(len(slides)))
    files = {
        "_rels/.rels": relations(("officeDocument", "ppt/presentation.xml")),
        "ppt/presentation.xml": f'<p xmlns:r="{office}">{ids}</p>',
        "ppt/_rels/presentation.xml.rels": relations(*(("slide", f"slides/{slide}.xml") for slide in slides)),
        "docProps/core.xml": f"<c><title>{title}</title></c>",
    }
    for slide in slides:
        own = (("notesSlide", f"../notes/{slide}.xml"), ("chart", f"../charts/{slide}.xml"))
        files[f"ppt/slides/_rels/{slide}.xml.rels"] = relations(*own)
        files[f"ppt/slides/{slide}.xml"] = drawn(slide)
        files[f"ppt/notes/{slide}.xml"] = drawn(f"Say {slide}.")
        files[f"ppt/charts/{slide}.xml"] = f"<c><strCache><pt><v>Bar of {slide}</v></pt></strCache></c>"
    write_zip(path, files)


def write_epub(
    path: Path, chapters: dict[str, str], title: str, language: str, encrypted: str = "", lost: str = ""
) -> None:
    """An EPUB of chapters by their file names.

    Args:
        encrypted: the file name of a chapter that is said to be encrypted.
        lost: that of a chapter that is listed but not among the files.
    """
    container = "urn:oasis:names:tc:opendocument:xmlns:container"
    items = "".join(f'<item id="{name}" href="{name}"/>' for name in sorted(chapters))
    spine = "".join(f'<itemref idref="{name}"/>' for name in chapters)
    metadata = f"<dc:title>{title}</dc:title><dc:language>{language}</dc:language>"
    files = {
        "META-INF/container.xml": f'<container xmlns="{container}"><rootfiles><rootfile full-path="OPS/a.opf"/>'
        "</rootfiles></container>",
        "OPS/a.opf": '<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="http://purl.org/dc/elements/'
        f'1.1/">{metadata}</metadata><manifest>{items}</manifest><spine>{spine}</spine></package>',
        **{
            f"OPS/{name}": f"<html><body><h1>{text}</h1></body></html>"
            for name, text in chapters.items()
            if name != lost
        },
    }
    files.pop(f"OPS/{lost}", None)
    if encrypted:
        files["META-INF/encryption.xml"] = f'<encryption><CipherReference URI="OPS/{encrypted}"/></encryption>'
    write_zip(path, files)
