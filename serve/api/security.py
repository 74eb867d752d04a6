"""From settings to what secures both ports: TLS, the keys of clients, and that of the administration.

Every mistake in the settings or the files is found here, before anything listens. Built by `serve.service`.
"""

from dataclasses import dataclass
from typing import Self

from serve.api.auth import CERTIFICATE, CLIENT_CA, KEY, Tls, TlsFiles
from serve.api.door import Door
from serve.api.key_ring import KeyRing
from serve.files import FileError
from serve.settings import ServeSettings


@dataclass(frozen=True, slots=True)
class Security:
    """What keeps strangers out.

    Attributes:
        tls: for both ports; None: they speak in the clear.
        door: who may ask for translations.
        admin_door: who may administrate; None: nobody.
    """

    tls: Tls | None
    door: Door
    admin_door: Door | None

    @classmethod
    def open(cls, settings: ServeSettings) -> Self:
        """Reads every file that the settings name.

        Raises:
            FileError: if one cannot be used, or they do not go together.
            SystemExit: if the admin key cannot be had.
        """
        tls, admin_key = _open_tls(settings), settings.read_admin_key()
        return cls(
            tls=tls,
            door=Door(_open_keys(settings), certificates=tls is not None and tls.mutual),
            admin_door=None if admin_key is None else Door(KeyRing([admin_key])),
        )

    def refresh(self) -> None:
        """Reads again what changed."""
        if self.tls is not None:
            self.tls.refresh()
        self.door.refresh()


def _open_tls(settings: ServeSettings) -> Tls | None:
    certificate, key, client_ca = settings.tls_certificate_file, settings.tls_key_file, settings.tls_client_ca_file
    if certificate is not None and key is not None:
        return Tls(TlsFiles(certificate, key, client_ca))
    given = {CERTIFICATE: certificate, KEY: key, CLIENT_CA: client_ca}
    for name, path in given.items():
        if path is not None:
            raise FileError(f"--{name}: {path}: expected --{CERTIFICATE} and --{KEY} beside it")
    return None


def _open_keys(settings: ServeSettings) -> KeyRing | None:
    if settings.api_keys_file is not None:
        if settings.api_keys is not None:
            raise FileError(f"--api-keys-file: {settings.api_keys_file}: expected no file beside --api-keys")
        return KeyRing.open(settings.api_keys_file)
    if settings.api_keys is None:
        return None
    keys = settings.api_keys.get_secret_value().split()
    if not keys:
        raise FileError("--api-keys: no key in it, expected one or several, with white space between them")
    return KeyRing(keys)
