"""A certificate authority for one test, on the openssl program: `Authority(folder).issue(...)`."""

import subprocess
from pathlib import Path


def openssl(*words: str, stdin: str = "") -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, text=True, input=stdin)


class Authority:
    """Its certificate is `ca.crt` in its folder; what it issues lies beside it."""

    def __init__(self, folder: Path, name: str = "tests"):
        self.folder = folder / f"authority-{name}"
        self.folder.mkdir()
        self.certificate = self.folder / "ca.crt"
        self._key = self.folder / "ca.key"
        openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"),
            *("-subj", f"/CN=authority {name}", "-days", "2"),
            *("-addext", "keyUsage=critical,keyCertSign"),
            *("-keyout", str(self._key), "-out", str(self.certificate)),
        )

    def issue(self, name: str, alternatives: str = "", days: int = 1) -> tuple[Path, Path]:
        """Certificate and key of `name`; `alternatives` like "IP:127.0.0.1,DNS:localhost"; a negative
        number of `days` makes one that has expired."""
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        request = self.folder / f"{name}.csr"
        openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"),
            *("-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request)),
        )
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternatives}\n" if alternatives else "")
        openssl(
            *("x509", "-req", "-in", str(request), "-out", str(certificate), "-days", str(days)),
            *("-CA", str(self.certificate), "-CAkey", str(self._key), "-extfile", str(extensions)),
        )
        return certificate, key
