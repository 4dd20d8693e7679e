"""The guest book in Flask."""

import time
import uuid

import notes
from flask import Flask, Response, make_response, redirect, request

app = Flask(__name__)


@app.get("/")
def index():
    return notes.page("Flask", request.cookies.get("name", "nobody")), {"Cache-Control": "private, no-cache"}


@app.post("/notes")
def write():
    notes.add(request.form["text"])
    return redirect("/", 303)


@app.get("/name/<name>")
def name(name):
    answer = make_response(redirect("/", 303))
    answer.set_cookie("name", name)
    return answer


@app.get("/cached")
def cached():
    return uuid.uuid4().hex, {"Cache-Control": "max-age=60"}


@app.post("/upload")
@app.put("/upload")
def upload():
    seen = notes.Seen()
    while piece := request.stream.read(64 * 1024):
        seen.take(piece)
    return seen.text()


@app.post("/form")
def form():
    seen = notes.Seen()
    seen.take(request.files["file"].read())
    return seen.text()


@app.get("/download/<int:length>")
def download(length):
    return Response(notes.pieces(length), headers={"Content-Length": str(length), "Cache-Control": "no-store"})


@app.get("/events")
def events():
    def told():
        for number in range(3):
            yield f"data: {number}\n\n"
            time.sleep(0.05)
        yield "data: end\n\n"

    return Response(told(), mimetype="text/event-stream")
