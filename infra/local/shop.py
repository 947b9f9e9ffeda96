"""What the embedded back office says it did, for those who hold it against what should have been done."""

from typing import Any
from urllib.parse import quote

import httpx

from topics.errors import UnavailableError

TIMEOUT_S = 30.0


class ShopRecords:
    """The records of a back office's tenants. Another service than the embedded one cannot tell."""

    def __init__(self, base_url: str, client: httpx.AsyncClient) -> None:
        self._base_url = base_url.rstrip("/")
        self._client = client

    async def changes(self, tenant: str) -> list[dict[str, Any]] | None:
        """Every record of a tenant that differs from its start, or None when the service cannot tell.

        Raises:
            UnavailableError: It does not answer.
        """
        url = f"{self._base_url}/v1/{quote(tenant, safe='')}/changes"
        try:
            answer = await self._client.get(url, timeout=TIMEOUT_S)
        except httpx.HTTPError as error:
            raise UnavailableError("the back office does not answer") from error
        if answer.status_code in {404, 405, 501}:
            return None
        if answer.status_code != 200:
            raise UnavailableError(f"the back office answers {answer.status_code}")
        return answer.json()
