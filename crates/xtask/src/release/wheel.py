import base64, hashlib, pathlib, sys, zipfile
out, name, version, tag, program, readme, *texts = sys.argv[1:]
base = f"{name.replace('-', '_')}-{version}"
read = lambda file: pathlib.Path(file).read_bytes()
metadata = f"""Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: The command line of Tollgate: check, explain, simulate and replay a rate limit policy
License: Apache-2.0
Requires-Python: >=3.7
Description-Content-Type: text/markdown

""".encode() + read(readme)
wheel = f"Wheel-Version: 1.0\nGenerator: tollgate\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
files = {f"{base}.data/scripts/tollgate": read(program), f"{base}.dist-info/METADATA": metadata,
         f"{base}.dist-info/WHEEL": wheel}
files |= {f"{base}.dist-info/{pathlib.Path(text).name}": read(text) for text in texts}
digest = lambda data: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
lines = [f"{file},sha256={digest(data)},{len(data)}\n" for file, data in files.items()]
record = f"{base}.dist-info/RECORD"
files[record] = "".join(lines + [f"{record},,\n"]).encode()
with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
    for file, data in files.items():
        info = zipfile.ZipInfo(file, (1980, 1, 1, 0, 0, 0))
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = (0o100755 if "/scripts/" in file else 0o100644) << 16
        archive.writestr(info, data)
