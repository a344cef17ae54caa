"""Small files of all kinds that are no plain text, made without the libraries that read them."""

from __future__ import annotations

import zipfile
from pathlib import Path


def write_pdf(path: Path, pages: list[list[str]], title: str = "", trailer: str = "") -> None:
    """A PDF of lines of text; a page without lines holds nothing.

    Args:
        trailer: more entries of the trailer, such as `/Encrypt << ... >>`.
    """
    numbers = range(len(pages))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
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


def write_epub(
    path: Path, chapters: dict[str, str], title: str, language: str, encrypted: str = "", lost: str = ""
) -> None:
    """An EPUB of chapters by their file names.

    Args:
        encrypted: the file name of a chapter that is said to be encrypted.
        lost: that of a chapter that is in the order of reading but not among the files.
    """
    container = "urn:oasis:names:tc:opendocument:xmlns:container"
    items = "".join(f'<item id="{name}" href="{name}"/>' for name in sorted({*chapters} - {lost}))
    spine = "".join(f'<itemref idref="{name}"/>' for name in chapters)
    metadata = f"<dc:title>{title}</dc:title><dc:language>{language}</dc:language>"
    files = {
        "META-INF/container.xml": f'<container xmlns="{container}"><rootfiles><rootfile full-path="OPS/a.opf"/>'
        "</rootfiles></container>",
        "OPS/a.opf": '<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="http://purl.org/dc/elements/'
        f'1.1/">{metadata}</metadata><manifest>{items}</manifest><spine>{spine}</spine></package>',
        **{f"OPS/{name}": f"<html><body><h1>{text}</h1></body></html>" for name, text in chapters.items()},
    }
    if encrypted:
        files["META-INF/encryption.xml"] = f'<encryption><CipherReference URI="OPS/{encrypted}"/></encryption>'
    write_zip(path, files)
