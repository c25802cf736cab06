import asyncio, json, time
import pytest, pytest_asyncio, httpx
from tests.e2e.site import open_site, panel, dumped
pytestmark = pytest.mark.asyncio(loop_scope="module")
@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(emulator_hosts, tmp_path_factory):
    async with open_site(emulator_hosts, tmp_path_factory.mktemp("brk")) as running: yield running
ND={"Content-Type":"application/x-ndjson"}
async def test_same_batches(site):
    lines=[dumped({**panel(f"b{n}","a"),"idempotency_key":f"k{n}"}) for n in range(60)]
    body=b"\n".join(lines)
    rs=await asyncio.gather(*(site.call("POST","/v1/jobs:batch",content=body,headers=ND) for _ in range(4)))
    per={}
    for r in rs:
        assert r.status_code==200
        for l in map(json.loads,r.content.splitlines()): per.setdefault(l["line"],[]).append(l["status"])
    print(sorted({tuple(sorted(v)) for v in per.values()}))
    assert all(sorted(v)==[200,200,200,202] for v in per.values()), per
async def test_streams(site):
    job=await site.accepted(panel("slow-stream","a") | {"policy":{"deadline_seconds":600}},"sj")
    url=site.stack.info.api; host=url.split("//")[1]; h,p=host.split(":")
    key=site.stack.info.api_key
    await site.ended(job)
    # open job: no provider answers? use cancelable: stub delay unknown; use many new jobs
async def test_unreadable(site):
    ids=[await site.accepted(panel(f"u{n}","a"),f"u{n}") for n in range(3)]
    await site.ended(*ids)
    info=site.stack.info
    u=f"http://{info.firestore}/v1/projects/{info.project}/databases/(default)/documents/jobs/{ids[1]}?updateMask.fieldPaths=v"
    r=await site.client.patch(u,json={"fields":{"v":{"integerValue":"99"}}},headers={"Authorization":"Bearer owner"})
    assert r.status_code==200,r.text
    seen=[];bad=[];cur=""
    for _ in range(200):
        b=await site.read(f"/v1/jobs?limit=5{cur}")
        seen+=[j["id"] for j in b["jobs"]]; bad+=b["unreadable"]
        if not b["next_cursor"]: break
        cur="&cursor="+b["next_cursor"]
    assert bad==[ids[1]] and ids[0] in seen and ids[2] in seen and len(seen)==len(set(seen))
    page=await site.client.get(info.api+"/?limit=25",headers={"Authorization":f"Bearer {info.api_key}"})
    assert page.status_code==200 and "cannot be read" in page.text, page.text[:500]
async def test_slow_writers(site):
    info=site.stack.info; h,p=info.api.split("//")[1].split(":")
    ws=[]
    for n in range(150):
        r,w=await asyncio.open_connection(h,int(p))
        w.write(f"POST /v1/jobs:batch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {info.api_key}\r\nContent-Type: application/x-ndjson\r\nContent-Length: 100000\r\n\r\n{{".encode()); ws.append((r,w))
    t=time.time(); b=await site.read("/v1/jobs?limit=1"); print("with slow writers",time.time()-t)
    for r,w in ws: w.close()
    # unread big answers
    us=[]
    for n in range(40):
        r,w=await asyncio.open_connection(h,int(p))
        w.write((f"GET /v1/jobs?limit=60 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {info.api_key}\r\n\r\n"*20).encode()); us.append((r,w))
    await asyncio.sleep(3)
    t=time.time(); b=await site.read("/v1/jobs?limit=1"); print("with unread answers",time.time()-t)
    for r,w in us: w.transport.abort()
