"""Encrypted connections to object stores: certificates are verified, and trusted ones work.

The server has a certificate that it signed itself, for its address on loopback.
"""

import datetime as dt
import ipaddress
import os
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

READ = "import sys, plait; print(sum(b.num_rows for b in plait.scan([sys.argv[1]])))"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A file with the certificate, then its private key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    now = dt.datetime.now(dt.timezone.utc)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    usage = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("certificate") / "server.pem"
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(signed.public_bytes(pem) + key.private_bytes(pem, *plain))
    return path


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda v: v.name)
def url(certificate, tmp_path, request):
    """A Parquet file of 100 rows behind `https`."""
    pq.write_table(pa.table({"k": list(range(100))}), tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            asked = self.headers.get("Range")
            first, last = 0, len(data) - 1
            if asked:
                first, _, end = asked.removeprefix("bytes=").partition("-")
                first, last = (
                    (int(first), int(end or last)) if first else (len(data) - int(end), last)
                )
            part = data[first : last + 1]
            self.send_response(206 if asked else 200)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
            self.send_header("Content-Length", str(len(part)))
            self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(part)

        do_HEAD = do_GET

        def log_message(self, *arguments):
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request, client_address):
            pass  # the client did not trust the certificate

    server = Quiet(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.minimum_version = context.maximum_version = request.param
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_address[1]}/a.parquet"
    server.shutdown()
    server.server_close()
    thread.join(10)


def read(url, **variables):
    command = [sys.executable, "-c", READ, url]
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, timeout=120
    )


def test_a_trusted_certificate_is_read_from(url, certificate):
    answer = read(url, SSL_CERT_FILE=str(certificate))
    assert (answer.stdout.strip(), answer.returncode) == ("100", 0), answer.stderr


@pytest.mark.few(1)
def test_an_unknown_certificate_is_refused(url):
    answer = read(url)
    assert answer.returncode != 0 and "StorageError" in answer.stderr
    assert "certificate" in answer.stderr
