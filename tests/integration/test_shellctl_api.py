"""The embedded sandbox daemon from outside, by a strict client: every endpoint, field, status and
code of the shellctl protocol, and what the protocol's traps are replaced by."""

import concurrent.futures
import hashlib
import os
import secrets
import shutil
import tempfile
import time
from pathlib import Path

import harness
import httpx
import pytest
from harness import descendants, wait_until
from shellctl_client import client_of, fails

STDIO = {"mode": "stdio"}


@pytest.fixture(scope="module")
def shared(bindery):
    """One daemon for all tests that leave it as they found it; starting one takes a while."""
    folder = Path(tempfile.mkdtemp(prefix="bindery-"))
    folder.chmod(0o755)
    listen, token = f"127.0.0.1:{harness.free_port()}", secrets.token_hex(16)
    args = ["shellctl", "serve", "--listen", listen, "--state-dir", str(folder / "state")]
    process = harness.Daemon(
        bindery, folder, args, {"SHELLCTL_AUTH_TOKEN": token}, listen, token
    ).start()
    yield process
    process.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def one(request, shared):
    """A client of the shared daemon, which has no jobs before and after."""
    request.node.started_programs = [shared]
    with client_of(shared) as client:
        client.daemon = shared
        yield client
        for job in client.list(limit=200):
            client.delete(job.job_id, force=True, grace_seconds=0)


def is_running(pid: int) -> bool:
    try:
        stat = open(f"/proc/{pid}/stat").read()
    except FileNotFoundError:
        return False
    return stat[stat.rindex(")") + 2] != "Z"


# ---- the surface ---------------------------------------------------------------------------------


def test_health_needs_no_token(one):
    assert one.health().status == "ok"
    assert one.request("GET", "/healthz", auth=False).content == b'{"status":"ok"}\n'


def test_the_header_must_match_byte_by_byte(one):
    wrong = (None, "", "Bearer", "bearer {}", "BEARER {}", "Bearer  {}", "Bearer {}x", "Bearer x{}",
             "Basic {}", "{}")  # fmt: skip
    for authorization in wrong:
        headers = {}
        if authorization is not None:
            headers["Authorization"] = authorization.format(one.daemon.token)
        for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs/run"), ("DELETE", "/v1/jobs/x")):
            answer = one.request(method, path, auth=False, headers=headers)
            assert answer.status_code == 401, authorization
            assert answer.json() == {
                "error": {"code": "unauthorized", "message": "Missing or invalid bearer token"}
            }


def test_the_token_is_checked_before_the_body(one):
    answer = one.request("POST", "/v1/jobs/run", auth=False, content=b"{not json")
    assert answer.status_code == 401


def test_an_unknown_route_is_not_an_unknown_job(one):
    for path in ("/", "/v1", "/v1/nothing", "/v2/jobs", "/v1/jobs/a/b/c", "/v1/prepare"):
        answer = one.request("PUT" if path == "/v1/prepare" else "GET", path)
        assert answer.status_code == 404, path
        assert answer.json()["error"]["code"] == "route_not_found"


def test_a_wrong_method_says_which_are_right(one):
    answer = one.request("PUT", "/v1/jobs/run")
    assert answer.status_code == 405
    assert "POST" in answer.headers["allow"]
    assert answer.json()["error"]["code"] == "method_not_allowed"


# ---- run -----------------------------------------------------------------------------------------


def test_run_to_the_end(one):
    result = one.run("echo hello")
    assert (result.status, result.exit_code, result.output) == ("exited", 0, "hello\n")
    assert result.offset == 6 and not result.truncated
    assert len(result.job_id) == 16 and set(result.job_id) <= set("0123456789abcdef")
    assert result.output_path.endswith(f"/jobs/{result.job_id}/output.log")


@pytest.mark.parametrize("mode", ["pty", "stdio"])
def test_exit_codes_are_the_scripts(one, mode):
    assert one.run("exit 42", mode=mode).exit_code == 42
    assert one.run("kill -9 $$", mode=mode).exit_code == 137
    assert one.run("no-such-command-here", mode=mode).exit_code == 127


def test_a_shebang_is_honoured(one):
    result = one.run("#!/bin/cat\nthis is my own text\n", **STDIO)
    assert result.output == "#!/bin/cat\nthis is my own text\n"


def test_stdio_keeps_stderr_apart_and_has_no_stdin(one):
    result = one.run("echo out; echo err >&2; cat; test -t 0 || echo no tty", **STDIO)
    assert result.output == "out\nno tty\n"


def test_pty_merges_and_is_a_terminal(one):
    result = one.run("test -t 0 && test -t 1 && test -t 2 && echo err >&2; stty size")
    assert result.output == "err\n50 200\n"
    result = one.run("stty size", terminal={"cols": 133, "rows": 7})
    assert result.output == "7 133\n"


def test_pty_output_has_no_control_sequences(one):
    result = one.run(r"printf '\033[31mred\033[0m \033]0;title\007plain\n'")
    assert result.output == "red plain\n"


def test_environment_is_laid_over(one):
    result = one.run("echo $ONE-$TWO", env={"ONE": "a b", "TWO": "'\"$x"})
    assert result.output == "a b-'\"$x\n"


def test_no_secret_of_the_daemon_reaches_a_job(one):
    result = one.run("env; cat /proc/$PPID/environ 2>/dev/null")
    assert one.daemon.token not in result.output
    assert "SHELLCTL_" not in result.output


def test_cwd(one, folder):
    (folder / "here").mkdir(mode=0o777)
    (folder / "here").chmod(0o777)
    assert one.run("pwd", cwd=str(folder / "here")).output == f"{folder}/here\n"
    assert one.run("pwd").output == f"{one.daemon.folder}\n", "HOME of the daemon"
    assert one.run("pwd", cwd="").output == f"{one.daemon.folder}\n"
    with fails(400, "invalid_cwd"):
        one.run("pwd", cwd=str(folder / "absent"))
    (folder / "file").write_text("")
    with fails(400, "invalid_cwd"):
        one.run("pwd", cwd=str(folder / "file"))
    with fails(400, "invalid_cwd"):
        one.run("pwd", cwd="relative/absent")
    assert len(one.list()) == 3, "a refused run makes no job"


BAD_RUNS = [
    (b"", 400, "invalid_request"),
    (b"{", 400, "invalid_request"),
    (b"[]", 400, "invalid_request"),
    (b"null", 400, "invalid_request"),
    (b"{}", 400, "invalid_request"),
    (b'{"script":""}', 400, "invalid_request"),
    (b'{"script":null}', 400, "invalid_request"),
    (b'{"script":7}', 400, "invalid_request"),
    (b'{"script":"true","timeout":"soon"}', 400, "invalid_request"),
    (b'{"script":"true","output_limit":{}}', 400, "invalid_request"),
    (b'{"script":"true","cwd":5}', 400, "invalid_request"),
    (b'{"script":"true","terminal":[]}', 400, "invalid_request"),
    (b'{"script":"true","env":[]}', 400, "invalid_request"),
    (b'{"script":"true","env":{"A":1}}', 400, "invalid_request"),
    (b'{"script":"true","env":{"":"x"}}', 422, "validation_error"),
    (b'{"script":"true","env":{"A=B":"x"}}', 422, "validation_error"),
    (b'{"script":"true","env":{"A":"x\\u0000y"}}', 422, "validation_error"),
    (b'{"script":"true","mode":"screen"}', 422, "validation_error"),
    (b'{"script":"true","terminal":{"cols":5000}}', 422, "validation_error"),
    (b'{"script":"true","terminal":{"rows":-1}}', 422, "validation_error"),
    (b'{"script":"tr\xffue"}', 400, "invalid_request"),
    (b'{"a":' * 50 + b"1" + b"}" * 50, 400, "invalid_request"),
]


def test_bad_run_requests(one):
    for body, status, code in BAD_RUNS:
        answer = one.request("POST", "/v1/jobs/run", content=body)
        got = (answer.status_code, answer.json()["error"]["code"])
        assert got == (status, code), (body, answer.text)
    assert one.list() == []


def test_lax_run_requests(one):
    """Unknown keys, nulls, no content type, something behind the value: all as the protocol has it."""
    body = (
        b'{"script":"echo fine","what":{"is":["this"]},"cwd":null,"env":null,"terminal":null,'
        b'"mode":"","timeout":0,"output_limit":-1,"idle_flush_seconds":null} {"script":"no"} trailing'
    )
    answer = one.request("POST", "/v1/jobs/run", content=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["output"] == "fine\n"


def test_a_script_of_megabytes(one):
    text = "x" * 3_000_000
    result = one.run(f"cat > f <<'END'\n{text}\nEND\nwc -c < f; rm f", **STDIO)
    assert result.output.strip() == "3000001"


def test_too_large_a_body_is_refused(one):
    answer = one.request("POST", "/v1/jobs/run", json={"script": "#" * 40_000_000})
    assert answer.status_code == 413


# ---- windows, wait, tail --------------------------------------------------------------------------


def test_a_silent_job_is_waited_for_until_the_timeout(one):
    begun = time.monotonic()
    result = one.run("sleep 30", timeout=1)
    assert 0.9 < time.monotonic() - begun < 6
    assert (result.status, result.done, result.exit_code, result.output) == ("running", False, None, "")
    one.delete(result.job_id, force=True)


def test_output_comes_when_the_job_pauses(one):
    result = one.run("echo first; sleep 30", timeout=20)
    assert result.output == "first\n" and not result.done
    one.delete(result.job_id, force=True)


def test_a_full_window_comes_at_once(one):
    result = one.run("seq 100000", timeout=30, output_limit=1000, **STDIO)
    assert result.truncated and len(result.output) == 1000
    end, _ = one.finish(result)
    assert end.exit_code == 0


def test_windows_add_up(one):
    result = one.run("seq 1 20000", output_limit=777, **STDIO)
    end, output = one.finish(result)
    assert output == "".join(f"{i}\n" for i in range(1, 20001))
    assert end.offset == len(output)
    again = one.wait(result.job_id, offset=len(output))
    assert (again.output, again.truncated, again.done) == ("", False, True)


def test_zero_timeout_is_one_look(one):
    job = one.run("sleep 30", timeout=0.2).job_id
    begun = time.monotonic()
    result = one.wait(job, timeout=0)
    assert time.monotonic() - begun < 20 and result.output == "" and not result.done
    one.delete(job, force=True)


def test_a_wait_sees_the_end_at_once(one):
    job = one.run("read line; exit 7", timeout=0.3).job_id
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(one.wait, job, timeout=60)
        with client_of(one.daemon) as other:
            other.input(job, "go\n", timeout=0.1)
        result = waiting.result(20)
    assert result.status == "exited" and result.exit_code == 7 or not result.done
    end, _ = one.finish(result)
    assert end.exit_code == 7


def test_offsets(one):
    job = one.run("printf abcdef", **STDIO).job_id
    assert one.wait(job, offset=2, output_limit=3).output == "cde"
    assert one.wait(job, offset=6).output == ""
    with fails(400, "invalid_offset"):
        one.wait(job, offset=7)
    with fails(400, "invalid_offset"):
        one.wait(job, offset=-1)


def test_tail(one):
    job = one.run("seq 1 2000", **STDIO).job_id
    tail = one.tail(job, output_limit=10)
    assert tail.output == "1999\n2000\n"[-10:] and not tail.truncated
    assert tail.offset == one.status(job).offset
    for limit in ("0", "-4", "much", ""):
        answer = one.request("GET", f"/v1/jobs/{job}/log/tail?output_limit={limit}")
        assert answer.json()["output"].endswith("2000\n")


def test_unknown_jobs(one):
    for where in ("wait", "input", "terminate", "log/tail", ""):
        method = {"log/tail": "GET", "": "GET"}.get(where, "POST")
        for job in ("0123456789abcdef", "x", "..%2f..", "%00", "a" * 10_000, "ñ"):
            path = f"/v1/jobs/{job}" + (f"/{where}" if where else "")
            answer = one.request(method, path, json={"text": ""})
            assert answer.status_code in (400, 404, 431), (path, answer.text)
            if job in ("0123456789abcdef", "x"):
                assert answer.json() == {
                    "error": {"code": "job_not_found", "message": "Unknown job id"}
                }


# ---- text that is cut or is none: case A50 --------------------------------------------------------


def test_characters_are_never_cut_at_any_limit(one):
    text = "café☕日本語😀"
    job = one.run(f"printf %s '{text}'", **STDIO).job_id
    size = len(text.encode())
    for limit in range(1, size + 2):
        result, output = one.finish(one.wait(job, output_limit=limit))
        output = ""
        offset = 0
        while True:
            result = one.wait(job, offset=offset, output_limit=limit)
            output += result.output
            assert result.offset > offset
            offset = result.offset
            if not result.truncated:
                break
        assert output == text and offset == size


@pytest.mark.parametrize("mode", ["pty", "stdio"])
def test_a_character_written_in_pieces(one, mode):
    script = r"printf 'caf\303'; sleep 0.7; printf '\251 \342\230'; sleep 0.7; printf '\225'"
    _, output = one.run_to_end(script, mode=mode, idle_flush_seconds=0.1)
    assert output == "café ☕"


def test_three_hundred_thousand_bytes_of_coffee(one):
    script = "i=0; while [ $i -lt 1000 ]; do printf %s '" + "☕" * 100 + "'; i=$((i+1)); done"
    _, output = one.run_to_end(script, **STDIO)
    assert output == "☕" * 100_000


def test_what_is_no_text_is_replaced_and_windows_advance(one):
    script = r"printf 'a\377b\300\257c\355\240\200d\200\200\200e\342\230'; printf '\000f\360\237'"
    for limit in (1, 2, 3, 5, 8192):
        _, output = one.run_to_end(script, output_limit=limit, **STDIO)
        assert output.startswith("a\ufffdb") and "e" in output and "f" in output
    result, output = one.run_to_end("head -c 200000 /dev/urandom", **STDIO)
    assert result.exit_code == 0 and len(output) > 50_000


# ---- much output: case A51 -------------------------------------------------------------------------


def resident_kib(pid: int) -> int:
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def test_a_hundred_megabytes_cost_no_memory(one):
    one.run("true")
    before = resident_kib(one.daemon.pid)
    job = one.run("head -c 100000000 /dev/zero | tr '\\0' x", timeout=0.5, **STDIO).job_id
    wait_until(lambda: one.status(job).done, 60, "the end of a job that nobody reads")
    assert one.status(job).offset == 100_000_000
    last = one.wait(job, offset=99_000_000, output_limit=1_000_000)
    assert last.output == "x" * 1_000_000 and not last.truncated
    grown = resident_kib(one.daemon.pid) - before
    assert grown < 64 * 1024, f"{grown} KiB"  # sanitizers keep freed memory for a while
    one.delete(job)


# ---- input -----------------------------------------------------------------------------------------


def test_a_conversation(one):
    first = one.run("echo name?; read name; echo hello $name", timeout=20)
    assert first.output == "name?\n"
    answer = one.input(first.job_id, "World\n", offset=first.offset, timeout=20)
    end, rest = one.finish(answer)
    assert (answer.output + rest[len(answer.output):]).endswith("hello World\n")
    assert end.exit_code == 0


def test_input_is_refused_where_it_cannot_go(one):
    quiet = one.run("sleep 30", timeout=0.2, **STDIO).job_id
    with fails(409, "input_unsupported"):
        one.input(quiet, "x")
    one.terminate(quiet, 0)
    with fails(409, "job_not_running"):
        one.input(quiet, "x")
    ended = one.run("true").job_id
    with fails(409, "job_not_running"):
        one.input(ended, "x")
    with fails(404, "job_not_found"):
        one.input("feedfeedfeedfeed", "x")
    answer = one.request("POST", f"/v1/jobs/{ended}/input", json={"text": 5})
    assert answer.json()["error"]["code"] == "invalid_request"


def test_large_input_arrives_whole(one):
    job = one.run("stty raw -echo; head -c 200000 | md5sum", timeout=0.5).job_id
    text = "0123456789" * 20_000
    end, output = one.finish(one.input(job, text, timeout=20))
    assert hashlib.md5(text.encode()).hexdigest() in output and end.exit_code == 0


# ---- ending ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["pty", "stdio"])
def test_terminate_returns_when_the_process_has_gone(one, mode):
    result = one.run("echo $$; exec sleep 300", timeout=20, mode=mode)
    begun = time.monotonic()
    view = one.terminate(result.job_id, grace_seconds=20)
    assert time.monotonic() - begun < 15, "it does not sleep the grace"
    assert (view.status, view.exit_code) == ("terminated", None)
    assert view.started_at and view.ended_at
    again = one.terminate(result.job_id)
    assert again == view


def test_a_job_that_ignores_signals_gets_its_grace_then_dies(one):
    result = one.run("trap '' INT TERM; echo ready; while :; do sleep 0.1; done", timeout=20)
    begun = time.monotonic()
    view = one.terminate(result.job_id, grace_seconds=1.5)
    assert 1.0 < time.monotonic() - begun < 11
    assert view.status == "terminated" and view.exit_code is None


def test_terminate_takes_any_body(one):
    for body in (b"", b"garbage", b"[]", b'{"grace_seconds":"x"}', b'{"grace_seconds":0}'):
        job = one.run("sleep 300", timeout=0.1).job_id
        answer = one.request("POST", f"/v1/jobs/{job}/terminate", content=body)
        assert answer.status_code == 200 and answer.json()["status"] == "terminated"


def test_an_ended_job_is_not_changed_by_terminate(one):
    job = one.run("exit 3").job_id
    view = one.terminate(job)
    assert (view.status, view.exit_code) == ("exited", 3)


def test_delete(one):
    live = one.run("sleep 300", timeout=0.2).job_id
    with fails(409, "job_running"):
        one.delete(live)
    assert not one.status(live).done
    for not_quite in ("True", "1", "yes", ""):
        answer = one.request("DELETE", f"/v1/jobs/{live}?force={not_quite}")
        assert answer.status_code == 409
    one.delete(live, force=True, grace_seconds=0.5)
    with fails(404, "job_not_found"):
        one.delete(live, force=True)
    ended = one.run("true").job_id
    one.delete(ended)
    with fails(404, "job_not_found"):
        one.status(ended)
    assert one.list() == []
    assert list((one.daemon.folder / "state/jobs").iterdir()) == []


def test_descendants_die_with_the_job(one):
    """Case A52: those that left the session too."""
    script = "setsid sleep 301 & (sleep 302 &) ; echo started; sleep 303"
    result = one.run(script, timeout=20, **STDIO)
    assert result.output == "started\n"
    assert len(sleeps()) == 3
    one.terminate(result.job_id, grace_seconds=1)
    assert sleeps() == []
    result = one.run("setsid sleep 304 >/dev/null 2>&1 & exit 0", **STDIO)
    assert result.status == "exited" or one.finish(result)[0].status == "exited"
    assert sleeps() == [], "and with the end of the script"


def sleeps() -> list[int]:
    found = []
    for pid in descendants(os.getpid()):
        try:
            words = open(f"/proc/{pid}/cmdline").read().split("\0")
        except OSError:
            continue
        if words[0].endswith("sleep") and words[1].startswith("30") and is_running(pid):
            found.append(pid)
    return found


def test_no_descriptor_of_the_daemon_reaches_a_job(one):
    result = one.run("ls -l /proc/self/fd | wc -l; ls -l /proc/self/fd", **STDIO)
    assert "socket:" not in result.output and "eventpoll" not in result.output, result.output
    assert "daemon.lock" not in result.output


# ---- list ------------------------------------------------------------------------------------------


def test_list(one):
    assert one.request("GET", "/v1/jobs").content == b'{"jobs":[]}\n'
    ended = [one.run("true").job_id for _ in range(3)]
    live = one.run("sleep 300", timeout=0.2).job_id
    assert [job.job_id for job in one.list()] == [live, *reversed(ended)]
    assert [job.job_id for job in one.list(limit=2)] == [live, ended[2]]
    assert [job.job_id for job in one.list(status="running")] == [live]
    assert [job.job_id for job in one.list(status="exited")] == list(reversed(ended))
    assert one.list(status="unheard-of") == []
    assert len(one.list(limit="x")) == len(one.list(limit=0)) == len(one.list(limit=-3)) == 4
    info = one.list(limit=1)[0]
    assert info.started_at and info.ended_at == ""
    one.delete(live, force=True)


# ---- scope ----------------------------------------------------------------------------------------


BAD_SCOPES = [
    {"X-Bindery-Home": "/tmp"},
    {"X-Bindery-Workspace": "/tmp"},
    {"X-Bindery-Home": "tmp", "X-Bindery-Workspace": "/tmp"},
    {"X-Bindery-Home": "/tmp", "X-Bindery-Workspace": "/tmp/../etc"},
    {"X-Bindery-Home": "/tmp/", "X-Bindery-Workspace": "/tmp"},
    {"X-Bindery-Home": "", "X-Bindery-Workspace": ""},
    {"X-Bindery-Home": "/", "X-Bindery-Workspace": "/tmp"},
]


def test_bad_scopes(one):
    for headers in BAD_SCOPES:
        for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs/run"), ("DELETE", "/v1/jobs/x")):
            answer = one.request(method, path, headers=headers, json={"script": "true"})
            got = (answer.status_code, answer.json()["error"]["code"])
            assert got == (400, "invalid_request"), headers


# ---- load ------------------------------------------------------------------------------------------


def test_fifty_jobs_at_once(one):
    def conversation(i):
        with client_of(one.daemon) as client:
            result, output = client.run_to_end(f"echo begin {i}; sleep 0.3; echo end {i}; exit {i}")
            client.delete(result.job_id)
            return result.exit_code, output

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        results = list(pool.map(conversation, range(50)))
    assert results == [(i, f"begin {i}\nend {i}\n") for i in range(50)]
    assert one.list() == []


def test_a_caller_that_goes_away_during_a_wait_leaves_the_job_alone(one):
    job = one.run("sleep 300", timeout=0.2).job_id
    for _ in range(5):
        with client_of(one.daemon) as other, pytest.raises(httpx.ReadTimeout):
            other.request("POST", f"/v1/jobs/{job}/wait", json={"timeout": 60}, timeout=0.2)
    assert one.status(job).status == "running"
    one.delete(job, force=True, grace_seconds=0)


def test_a_caller_that_goes_away_during_a_forced_delete_still_deletes(one):
    job = one.run("trap '' INT TERM; echo up; while :; do sleep 0.1; done", timeout=20).job_id
    with client_of(one.daemon) as other, pytest.raises(httpx.ReadTimeout):
        other.request("DELETE", f"/v1/jobs/{job}?force=true&grace_seconds=1", timeout=0.2)
    wait_until(lambda: one.list() == [], 20, "the deletion")
