"""Reading golden lists, and comparing JSON with them.

A list is a text file of lines with columns two spaces apart; "#" begins a comment. What is in one is published: users' scripts read
it. So names are added to these lists, and never changed or taken away.
"""
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
STAYS = "Published names stay, for users' scripts read them: bring it back. What replaces it may come beside it."


def rows(name, columns):
    """The lines of a list, each padded to so many columns."""
    found = []
    for line in (HERE / name).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            fields = re.split(r"\s{2,}", line.strip(), maxsplit=columns - 1)
            found.append(fields + [""] * (columns - len(fields)))
    assert found, name
    return found


def segments(path):
    """'files."a.b".*[]?' -> [("files", False), ("a.b", False), ("*", False), ("[]", True)]: each with whether it is optional."""
    found = []
    for quoted, plain, item, optional in re.findall(r'\.?(?:"([^"]*)"|([^.\[\]"?]+)|(\[\]))(\?)?', path):
        found.append((quoted or plain or item, bool(optional)))
    return found


def type_of(value):
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"), (dict, "object")):
        if isinstance(value, kind):
            return name
    return "null"


def fits(kind, wanted):
    return kind in wanted or (kind == "integer" and "number" in wanted)


class Golden:
    """The list of one kind of JSON document. `complaints` are what is wrong with those that were checked."""

    def __init__(self, file, what):
        self.file, self.what = file, what
        self.keys = []  # (segments without marks, optional, types, meaning)
        for path, types, meaning in rows(file, 3):
            parts = segments(path)
            self.keys.append((tuple(name for name, _ in parts), parts[-1][1], types.split("|"), meaning))
        self.seen = set()
        self.complaints = []

    def _matching(self, path):
        """The lines for this path, the most exact first."""
        def same(pattern):
            return len(pattern) == len(path) and all(p == "*" and q != "[]" or p == q for p, q in zip(pattern, path))
        return sorted((key for key in self.keys if same(key[0])), key=lambda key: key[0].count("*"))

    def _spell(self, path):
        return "".join(part if part == "[]" else f".{part}" for part in path).lstrip(".")

    def check(self, document, path=()):
        kind = type_of(document)
        if path:
            lines = self._matching(path)
            if not lines:
                self.complaints.append(f"{self.what} has {self._spell(path)} ({kind}), which tests/golden/{self.file} does not list: add its line "
                                       "there, and to the docs. From then on it stays.")
                return
            self.seen.update(key[0] for key in lines)
            if not fits(kind, lines[0][2]):
                self.complaints.append(f"{self.what}: {self._spell(path)} is {kind}, {document!r}; in tests/golden/{self.file} it is "
                                       f"{'|'.join(lines[0][2])}. {STAYS}")
                return
        below = [key for key in self.keys if len(key[0]) > len(path) and self._matching_prefix(key[0], path)]
        if not below:
            return  # somebody else's
        if kind == "object":
            for names, optional, types, meaning in below:
                if len(names) == len(path) + 1 and names[-1] not in ("*", "[]") and not optional and names[-1] not in document:
                    self.complaints.append(f"{self.what} lacks {self._spell(path + names[-1:])} ({', '.join(filter(None, ['|'.join(types), meaning]))}), "
                                           f"which tests/golden/{self.file} lists. {STAYS}")
            for name, value in document.items():
                self.check(value, path + (name,))
        elif kind == "array":
            for value in document:
                self.check(value, path + ("[]",))

    @staticmethod
    def _matching_prefix(pattern, path):
        return all(p == "*" and q != "[]" or p == q for p, q in zip(pattern, path))

    def unseen(self):
        """Lines that no document had: nothing checks them. But for those that say so: only a program of a special kind writes them."""
        return [self._spell(names) for names, _, _, meaning in self.keys if names not in self.seen and not meaning.startswith("rare:")]
