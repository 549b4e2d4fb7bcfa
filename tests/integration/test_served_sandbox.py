"""The embedded sandbox as `bindery serve` offers it: the tests of shellctl's API once more, by the
same client, through a lease's data plane."""

import contextlib

import pytest
from dify_client import DifyAgentClient
from served import TOKEN, lease_of, new_server
from shellctl_client import client_of

# what of the API does not depend on where the daemon is
from test_shellctl_api import (  # noqa: F401
    test_a_caller_that_goes_away_during_a_forced_delete_still_deletes,
    test_a_caller_that_goes_away_during_a_wait_leaves_the_job_alone,
    test_a_character_written_in_pieces,
    test_a_conversation,
    test_a_full_window_comes_at_once,
    test_a_job_that_ignores_signals_gets_its_grace_then_dies,
    test_a_shebang_is_honoured,
    test_a_silent_job_is_waited_for_until_the_timeout,
    test_a_wait_sees_the_end_at_once,
    test_an_ended_job_is_not_changed_by_terminate,
    test_bad_run_requests,
    test_characters_are_never_cut_at_any_limit,
    test_environment_is_laid_over,
    test_exit_codes_are_the_scripts,
    test_fifty_jobs_at_once,
    test_input_is_refused_where_it_cannot_go,
    test_large_input_arrives_whole,
    test_lax_run_requests,
    test_no_descriptor_of_the_daemon_reaches_a_job,
    test_offsets,
    test_output_comes_when_the_job_pauses,
    test_pty_merges_and_is_a_terminal,
    test_stdio_keeps_stderr_apart_and_has_no_stdin,
    test_tail,
    test_terminate_returns_when_the_process_has_gone,
    test_terminate_takes_any_body,
    test_three_hundred_thousand_bytes_of_coffee,
    test_what_is_no_text_is_replaced_and_windows_advance,
    test_windows_add_up,
    test_zero_timeout_is_one_look,
)


@pytest.fixture(scope="module")
def leased(bindery, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    for parent in (folder, folder.parent, folder.parent.parent):
        parent.chmod(0o755)
    server = new_server(bindery, folder).start().wait_ready()
    with contextlib.closing(DifyAgentClient(server.url, TOKEN)) as plane:
        made = plane.create()
        lease = lease_of(server, made.binding_ref)
        lease.server = server
        yield lease
        plane.destroy(made.binding_ref, True, made.workspace_ref)
    server.stop()


@pytest.fixture
def one(request, leased):
    request.node.started_programs = [leased.server]
    with client_of(leased) as client:
        client.daemon = leased
        yield client
        for job in client.list(limit=200):
            client.delete(job.job_id, force=True, grace_seconds=0)
