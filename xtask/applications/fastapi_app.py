"""The guest book in FastAPI."""

import asyncio
import uuid

import notes
from fastapi import Cookie, FastAPI, Form, Request, UploadFile, WebSocket
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, StreamingResponse

app = FastAPI()


@app.get("/")
def index(name: str = Cookie("nobody")):
    return HTMLResponse(notes.page("FastAPI", name), headers={"Cache-Control": "private, no-cache"})


@app.post("/notes")
def write(text: str = Form()):
    notes.add(text)
    return RedirectResponse("/", 303)


@app.get("/name/{name}")
def name(name: str):
    answer = RedirectResponse("/", 303)
    answer.set_cookie("name", name)
    return answer


@app.get("/cached")
def cached():
    return PlainTextResponse(uuid.uuid4().hex, headers={"Cache-Control": "max-age=60"})


@app.post("/upload")
@app.put("/upload")
async def upload(request: Request):
    seen = notes.Seen()
    async for piece in request.stream():
        seen.take(piece)
    return PlainTextResponse(seen.text())


@app.post("/form")
async def form(file: UploadFile):
    seen = notes.Seen()
    while piece := await file.read(64 * 1024):
        seen.take(piece)
    return PlainTextResponse(seen.text())


@app.get("/download/{length}")
async def download(length: int):
    async def told():
        for piece in notes.pieces(length):
            yield piece

    headers = {"Content-Length": str(length), "Cache-Control": "no-store"}
    return StreamingResponse(told(), headers=headers)


@app.get("/events")
async def events():
    async def told():
        for number in range(3):
            yield f"data: {number}\n\n"
            await asyncio.sleep(0.05)
        yield "data: end\n\n"

    return StreamingResponse(told(), media_type="text/event-stream")


@app.websocket("/echo")
async def echo(socket: WebSocket):
    await socket.accept()
    await socket.send_text("echo of " + await socket.receive_text())
    await socket.close()
