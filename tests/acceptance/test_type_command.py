"""`milepost type` on files, as a user runs it."""

import pytest

QUOTE = "quote: [symbol: string, price: double, size: int?]\n"
ORDER = """DEFINE MESSAGETYPE OrderMessage;
  NODE order; id: IDENT; lines: REFERENCE TO order_line; END;
  NODE order_line; no: INTEGER; price: REAL; END;
  ROOT order;
END;
"""


@pytest.fixture
def file(tmp_path):
    def written(text, name="schema.txt"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return written


def test_show_draws_the_tree_and_the_columns(milepost, file):
    shown = milepost("type", "show", file(QUOTE))
    assert shown.returncode == 0, shown.stderr
    assert "symbol: string" in shown.stdout
    assert "size: int?" in shown.stdout
    assert "fingerprint of the schema" in shown.stdout


def test_show_draws_message_types(milepost, file):
    shown = milepost("type", "show", file(ORDER))
    assert shown.returncode == 0, shown.stderr
    assert "order_line" in shown.stdout


def test_show_does_not_lay_out_thousands_of_cases(milepost, file):
    variants = ", ".join(f"v{i}: {{a: int | b: string}}" for i in range(14))
    shown = milepost("type", "show", file(f"wide: [{variants}]"))
    assert shown.returncode == 0, shown.stderr
    assert "16380 more cases" in shown.stdout


def test_check_prints_name_and_fingerprint(milepost, file):
    checked = milepost("type", "check", file(QUOTE))
    assert checked.returncode == 0, checked.stderr
    name, fingerprint = checked.stdout.split()
    assert name == "quote"
    assert len(fingerprint) == 16


def test_check_accepts_a_field_that_was_added(milepost, file):
    new = file("quote: [symbol: string, price: double, size: int?, venue: string?]", "new.txt")
    checked = milepost("type", "check", new, "--against", file(QUOTE))
    assert checked.returncode == 0, checked.stderr


def test_check_refuses_a_change_and_says_where(milepost, file):
    new = file("quote: [symbol: string, price: string, size: int?]", "new.txt")
    checked = milepost("type", "check", new, "--against", file(QUOTE))
    assert checked.returncode == 1
    assert "price" in checked.stderr
    assert "Traceback" not in checked.stderr


def test_a_syntax_error_shows_the_place(milepost, file):
    checked = milepost("type", "check", file("quote: [symbol string]"))
    assert checked.returncode == 1
    assert "line 1, column" in checked.stderr
    assert "^" in checked.stderr
    assert "Traceback" not in checked.stderr


def test_a_file_that_is_no_text_is_refused(milepost, tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(b"\xff\xfe\x00")
    checked = milepost("type", "check", path)
    assert checked.returncode == 1
    assert "UTF-8" in checked.stderr


def test_python_prints_classes_that_run(milepost, file):
    printed = milepost("type", "python", file(ORDER))
    assert printed.returncode == 0, printed.stderr
    names = {}
    exec(compile(printed.stdout, "generated", "exec"), names)
    assert any("order_line" in name.lower().replace("orderline", "order_line") for name in names)


def test_no_arguments_print_help(milepost):
    helped = milepost()
    assert "demo" in helped.stdout
    assert "type" in helped.stdout
