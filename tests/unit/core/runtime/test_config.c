/* Settings: defaults, every check, rules between settings, what is shown. */
#include "core/runtime/config.h"
#include "core/runtime/log.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct config *config;
static struct buf problems;

static void tear_down(void)
{
    config_free(config);
    buf_fini(&problems);
}

TestSuite(config, .fini = tear_down, .timeout = 10);

/* Parse NAME=value settings (up to four) besides HOME. */
static bool parse(const char *a, const char *b, const char *c, const char *d)
{
    char *environment[] = {
        (char *)"HOME=/home/me", (char *)a, (char *)b, (char *)c, (char *)d, NULL};

    config_free(config);
    buf_clear(&problems);
    config = config_parse(&(struct config_sources){.environment = environment}, &problems);
    return config != NULL;
}

static bool takes(const char *setting)
{
    return parse(setting, NULL, NULL, NULL);
}

/* The problems of one setting. */
static const char *refused(const char *setting)
{
    return takes(setting) ? "taken" : buf_text(&problems);
}

static const char *const openshell[] = {
    "DIFY_AGENT_RUNTIME_BACKEND=openshell", "DIFY_AGENT_OPENSHELL_GATEWAY_ENDPOINT= gw:8080 ",
    "DIFY_AGENT_OPENSHELL_DRIVER_CONFIG={\"a\":1}", "DIFY_AGENT_OPENSHELL_SHELLCTL_AUTH_TOKEN=tok"};

static bool openshell_with(const char *a, const char *b)
{
    char *environment[] = {(char *)"HOME=/h",
                           (char *)openshell[0],
                           (char *)openshell[1],
                           (char *)openshell[2],
                           (char *)openshell[3],
                           (char *)a,
                           a != NULL ? (char *)b : NULL,
                           NULL};

    config_free(config);
    buf_clear(&problems);
    config = config_parse(&(struct config_sources){.environment = environment}, &problems);
    return config != NULL;
}

Test(config, nothing_set_is_a_working_default)
{
    cr_assert(parse(NULL, NULL, NULL, NULL), "%s", buf_text(&problems));
    cr_assert_str_eq(config->runtime_backend, "local");
    cr_assert_null(config->api_token);
    cr_assert_null(config->local_endpoint);
    cr_assert(not(config->local_endpoint_given));
    cr_assert(not(config->local_roots_given[0]));
    cr_assert_str_eq(config->local_home_root, "/home/dify");
    cr_assert_str_eq(config->listen, "127.0.0.1:5050");
    cr_assert_str_eq(config->data_dir, "/home/me/.local/state/bindery");
    cr_assert(eq(i64, config->lease_ttl_ms, 300000));
    cr_assert(eq(i64, config->openshell_idle_stop_ms, 0));
    cr_assert(eq(i64, config->max_leases, 20000));
    cr_assert(config->access_log);
}

Test(config, values_are_read)
{
    cr_assert(parse("dify_agent_api_token= tok ", "BINDERY_LEASE_TTL_SECONDS= 1.5 ",
                    "BINDERY_MAX_LEASES= 7 ", "BINDERY_ACCESS_LOG=Off"));
    cr_assert_str_eq(config->api_token, "tok");
    cr_assert(eq(i64, config->lease_ttl_ms, 1500));
    cr_assert(eq(i64, config->max_leases, 7));
    cr_assert(not(config->access_log));
}

Test(config, blank_is_a_value_unless_the_setting_says_otherwise)
{
    cr_assert(parse("DIFY_AGENT_API_TOKEN=  ", "DIFY_AGENT_LOCAL_SANDBOX_AUTH_TOKEN=",
                    "BINDERY_LEDGER_URL=", "DIFY_AGENT_OPENSHELL_WORKSPACE="));
    cr_assert_null(config->api_token);
    cr_assert_null(config->local_auth_token);
    cr_assert_null(config->ledger_url);
    cr_assert_str_eq(config->openshell_workspace, "");
    cr_assert_str_eq(refused("BINDERY_MAX_LEASES="),
                     "BINDERY_MAX_LEASES='' (from the environment): is blank; expected an integer "
                     "from 1 to 10000000\n");
    cr_assert(not(takes("DIFY_AGENT_LOCAL_SANDBOX_WORKSPACE_ROOT=")));
}

Test(config, local_endpoint)
{
    cr_assert(takes("DIFY_AGENT_SHELLCTL_ENTRYPOINT=http://127.0.0.1:5004/x"));
    cr_assert(config->local_endpoint_given);
    cr_assert_str_eq(config->local_endpoint, "http://127.0.0.1:5004/x");
    cr_assert(takes("DIFY_AGENT_LOCAL_SANDBOX_ENDPOINT="), "an empty one means: no sandbox");
    cr_assert(config->local_endpoint_given);
    cr_assert_str_eq(config->local_endpoint, "");
    cr_assert(not(takes("DIFY_AGENT_LOCAL_SANDBOX_ENDPOINT=  ")));
    cr_assert(not(takes("DIFY_AGENT_LOCAL_SANDBOX_ENDPOINT=127.0.0.1:5004")));
    cr_assert(parse("DIFY_AGENT_LOCAL_SANDBOX_ENDPOINT=nonsense",
                    "DIFY_AGENT_RUNTIME_BACKEND=enterprise",
                    "DIFY_AGENT_ENTERPRISE_SANDBOX_GATEWAY_ENDPOINT=https://gw", NULL),
              "not checked for another backend: %s", buf_text(&problems));
    cr_assert(takes("DIFY_AGENT_LOCAL_SANDBOX_WORKSPACE_ROOT=/w"));
    cr_assert(config->local_roots_given[1] && !config->local_roots_given[0]);
}

Test(config, urls)
{
    static const char *const good[] = {"http://h", "HTTPS://h:1/", "https://[::1]:65535/a/b",
                                       "http://[::1]", "http://u:p@h:80"};
    static const char *const bad[] = {"h",           "ftp://h",     "http://",        "http:///a",
                                      "http://h:0",  "http://h:",   "http://h:65536", "http://h:x",
                                      "http://a b",  "http://h?q",  "http://h#f",     "http://[::1",
                                      "http://h\nx", "http://\xFF", "http://h/\"",    "http://:80"};
    char setting[100];

    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        snprintf(setting, sizeof(setting), "BINDERY_PUBLIC_URL=%s", good[i]);
        cr_assert(takes(setting), "%s: %s", good[i], buf_text(&problems));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        snprintf(setting, sizeof(setting), "BINDERY_PUBLIC_URL=%s", bad[i]);
        cr_assert(not(takes(setting)), "%s", bad[i]);
    }
}

Test(config, listen_addresses)
{
    static const char *const good[] = {"127.0.0.1:0", "0.0.0.0:80, [::]:80", "localhost:5050",
                                       "unix:/run/x.sock", "unix:/a,127.0.0.1:1"};
    static const char *const bad[] = {"",         "5050",       ":5050",    "h:",     "[::1]",
                                      "h:70000",  "unix:",      "unix:rel", "unix:/", "h:1,",
                                      "h:1,,h:2", "http://h:1", "::1:5050"};
    char setting[300];

    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        snprintf(setting, sizeof(setting), "BINDERY_LISTEN=%s", good[i]);
        cr_assert(takes(setting), "%s: %s", good[i], buf_text(&problems));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        snprintf(setting, sizeof(setting), "BINDERY_LISTEN=%s", bad[i]);
        cr_assert(not(takes(setting)), "%s", bad[i]);
    }
    snprintf(setting, sizeof(setting), "BINDERY_LISTEN=unix:/%0106d", 0);
    cr_assert(takes(setting));
    snprintf(setting, sizeof(setting), "BINDERY_LISTEN=unix:/%0107d", 0);
    cr_assert(not(takes(setting)));
}

Test(config, numbers)
{
    cr_assert(not(takes("BINDERY_MAX_LEASES=0")));
    cr_assert(not(takes("BINDERY_MAX_LEASES=1.5")));
    cr_assert(not(takes("BINDERY_MAX_LEASES=0x10")));
    cr_assert(not(takes("BINDERY_MAX_LEASES=99999999999999999999")));
    cr_assert(not(takes("BINDERY_LEASE_TTL_SECONDS=0")));
    cr_assert(not(takes("BINDERY_LEASE_TTL_SECONDS=-1")));
    cr_assert(not(takes("BINDERY_LEASE_TTL_SECONDS=0.0001")));
    cr_assert(not(takes("BINDERY_LEASE_TTL_SECONDS=inf")));
    cr_assert(not(takes("BINDERY_LEASE_TTL_SECONDS=nan")));
    cr_assert(not(takes("BINDERY_LEASE_TTL_SECONDS=0x1p3")));
    cr_assert(not(takes("BINDERY_LEASE_TTL_SECONDS=1e99")));
    cr_assert(not(takes("BINDERY_LEASE_TTL_SECONDS=3s")));
    cr_assert(takes("BINDERY_OPENSHELL_IDLE_STOP_SECONDS=0"), "its default is 0: never");
    cr_assert(not(takes("BINDERY_ACCESS_LOG=maybe")));
    cr_assert(not(takes("DIFY_AGENT_E2B_SHELLCTL_PORT=65536")), "ranges hold for every backend");
    cr_assert_str_eq(refused("BINDERY_LOG_LEVEL=loud"),
                     "BINDERY_LOG_LEVEL='loud' (from the environment): is not one of the choices; "
                     "expected one of debug|info|warn|error\n");
    cr_assert(not(takes("BINDERY_LOG_LEVEL=inf")));
    cr_assert(not(takes("BINDERY_LOG_LEVEL=")));
}

Test(config, a_backend_demands_its_settings)
{
    cr_assert_str_eq(refused("DIFY_AGENT_RUNTIME_BACKEND=enterprise"),
                     "DIFY_AGENT_ENTERPRISE_SANDBOX_GATEWAY_ENDPOINT: is not set, and the chosen "
                     "backend needs it; expected an http:// or https:// URL without query or "
                     "fragment\n");
    cr_assert(not(takes("DIFY_AGENT_RUNTIME_BACKEND=docker")));
    cr_assert_null(strstr(buf_text(&problems), "ENTERPRISE_SANDBOX"));
    cr_assert(not(takes("DIFY_AGENT_RUNTIME_BACKEND=openshell")));
    for (size_t i = 1; i < 4; i++) {
        char name[100];
        snprintf(name, sizeof(name), "%.*s: is not set", (int)strcspn(openshell[i], "="),
                 openshell[i]);
        cr_assert_not_null(strstr(buf_text(&problems), name), "%s", name);
    }
    cr_assert(not(parse("DIFY_AGENT_RUNTIME_BACKEND=e2b", "DIFY_AGENT_E2B_API_KEY= ", NULL, NULL)));
    cr_assert_str_eq(buf_text(&problems),
                     "DIFY_AGENT_E2B_API_KEY='***' (from the environment): is blank; expected text "
                     "that is not blank\n");
    cr_assert(not(parse("DIFY_AGENT_RUNTIME_BACKEND=enterprise",
                        "DIFY_AGENT_ENTERPRISE_SANDBOX_GATEWAY_ENDPOINT=", NULL, NULL)));
}

Test(config, openshell)
{
    cr_assert(openshell_with(NULL, NULL), "%s", buf_text(&problems));
    cr_assert_str_eq(config->openshell_endpoint, "gw:8080");
    cr_assert(openshell_with("DIFY_AGENT_OPENSHELL_EGRESS_ALLOW= a.b:443 ,, *.c:1,", NULL));
    cr_assert(not(openshell_with("DIFY_AGENT_OPENSHELL_EGRESS_ALLOW=a.b", NULL)));
    cr_assert(not(openshell_with("DIFY_AGENT_OPENSHELL_EGRESS_ALLOW=:443", NULL)));
    cr_assert(not(openshell_with("DIFY_AGENT_OPENSHELL_EGRESS_ALLOW=http://a:443", NULL)));
    cr_assert(not(openshell_with("DIFY_AGENT_OPENSHELL_EGRESS_ALLOW=a:0", NULL)));
    cr_assert(not(openshell_with("DIFY_AGENT_OPENSHELL_TLS_CLIENT_CERT_PATH=/c", NULL)));
    cr_assert_str_eq(
        buf_text(&problems),
        "DIFY_AGENT_OPENSHELL_TLS_CLIENT_KEY_PATH: is not set, but its counterpart is; "
        "set certificate and key, or neither\n");
    cr_assert(not(openshell_with("DIFY_AGENT_OPENSHELL_TLS_CLIENT_CERT_PATH= ",
                                 "DIFY_AGENT_OPENSHELL_TLS_CLIENT_KEY_PATH=/k")));
    cr_assert(openshell_with("DIFY_AGENT_OPENSHELL_TLS_CLIENT_CERT_PATH=/c",
                             "DIFY_AGENT_OPENSHELL_TLS_CLIENT_KEY_PATH=/k"));
    cr_assert(takes("DIFY_AGENT_OPENSHELL_TLS_CLIENT_CERT_PATH=/c"), "another backend");
}

Test(config, openshell_json_and_endpoint)
{
    static const char *const bad[] = {"DIFY_AGENT_OPENSHELL_DRIVER_CONFIG={}",
                                      "DIFY_AGENT_OPENSHELL_DRIVER_CONFIG=[1]",
                                      "DIFY_AGENT_OPENSHELL_DRIVER_CONFIG={x",
                                      "DIFY_AGENT_OPENSHELL_DRIVER_CONFIG=",
                                      "DIFY_AGENT_OPENSHELL_GATEWAY_ENDPOINT=http://gw:1",
                                      "DIFY_AGENT_OPENSHELL_GATEWAY_ENDPOINT=gw",
                                      "DIFY_AGENT_OPENSHELL_GATEWAY_ENDPOINT=gw:0",
                                      "DIFY_AGENT_OPENSHELL_GATEWAY_ENDPOINT=gw:1/x",
                                      "DIFY_AGENT_OPENSHELL_GATEWAY_ENDPOINT= ",
                                      "DIFY_AGENT_OPENSHELL_SHELLCTL_AUTH_TOKEN= ",
                                      "DIFY_AGENT_OPENSHELL_SANDBOX_IMAGE=",
                                      "DIFY_AGENT_OPENSHELL_SHARED_MOUNT_PATH=rel"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        char *environment[] = {(char *)"HOME=/h", (char *)openshell[0], (char *)bad[i], NULL};
        char text[400];
        snprintf(text, sizeof(text), "%s\n%s\n%s", openshell[1], openshell[2], openshell[3]);
        buf_clear(&problems);
        config = config_parse(&(struct config_sources){.environment = environment,
                                                       .env_files = {text},
                                                       .env_file_names = {".env"}},
                              &problems);
        cr_assert_null(config, "%s", bad[i]);
        cr_assert(strncmp(buf_text(&problems), bad[i], strcspn(bad[i], "=")) == 0, "%s: %s", bad[i],
                  buf_text(&problems));
    }
}

Test(config, unknown_names_of_ours_are_told)
{
    cr_assert(takes("BINDERY_MAX_LEASES=5"));
    cr_assert_null(config->unknown);
    cr_assert(
        parse("BINDERY_LEASE_TTL=5", "DIFY_AGENT_NEW_THING=1", "bindery_listen=h:1", "BINDERY_X="));
    cr_assert_str_eq(config->unknown, "BINDERY_LEASE_TTL, BINDERY_X");
}

Test(config, rules_between_settings)
{
    cr_assert(not(takes("BINDERY_LEASE_SECRET=15-bytes-only..")));
    cr_assert_null(strstr(buf_text(&problems), "15-bytes"));
    cr_assert(takes("BINDERY_LEASE_SECRET=16-bytes-or-more"));
    cr_assert(not(takes("DIFY_AGENT_STUB_API_BASE_URL=http://stub")));
    cr_assert(not(takes("DIFY_AGENT_SERVER_SECRET_KEY=a+b")));
    cr_assert(parse("DIFY_AGENT_STUB_API_BASE_URL=http://stub",
                    "DIFY_AGENT_SERVER_SECRET_KEY=aGVsbG8_-A==", NULL, NULL));
    cr_assert(not(takes("BINDERY_LEASE_TTL_SECONDS=3601")));
    cr_assert(not(takes("BINDERY_LEASE_MAX_TTL_SECONDS=86401")));
}

Test(config, data_dir)
{
    char *const none[] = {NULL};
    char *const xdg[] = {(char *)"XDG_STATE_HOME=/state", (char *)"HOME=/h", NULL};
    char *const relative[] = {(char *)"XDG_STATE_HOME=state", (char *)"HOME=/", NULL};

    cr_assert_null(config_parse(&(struct config_sources){.environment = none}, &problems));
    cr_assert_not_null(strstr(buf_text(&problems), "BINDERY_DATA_DIR: is not set"));
    config = config_parse(&(struct config_sources){.environment = xdg}, &problems);
    cr_assert_str_eq(config->data_dir, "/state/bindery");
    config_free(config);
    config = config_parse(&(struct config_sources){.environment = relative}, &problems);
    cr_assert_str_eq(config->data_dir, "/.local/state/bindery");
    cr_assert(not(takes("BINDERY_DATA_DIR=relative")));
    cr_assert(takes("BINDERY_DATA_DIR=/d"));
}

Test(config, all_problems_at_once_and_no_secret_among_them)
{
    cr_assert(not(parse("DIFY_AGENT_API_TOKEN=secret\r\nvalue", "BINDERY_LEDGER_URL=mysql://u:pw@h",
                        "BINDERY_PUBLIC_URL=ftp://user:pw@h\x01", "BINDERY_MAX_LEASES=x")));
    cr_assert_str_eq(
        buf_text(&problems),
        "BINDERY_MAX_LEASES='x' (from the environment): is not an integer; expected an integer "
        "from 1 to 10000000\n"
        "DIFY_AGENT_API_TOKEN='***' (from the environment): holds a control character; expected "
        "text\n"
        "BINDERY_PUBLIC_URL='ftp://***@h\\u0001' (from the environment): holds a control "
        "character; expected an http:// or https:// URL without query or fragment\n"
        "BINDERY_LEDGER_URL='***' (from the environment): is neither a postgresql:// URL nor "
        "sqlite:/path; expected postgresql://… or sqlite:/path\n");
}

Test(config, malformed_lines_of_known_settings_are_problems)
{
    char *const environment[] = {(char *)"HOME=/h", NULL};

    config =
        config_parse(&(struct config_sources){.environment = environment,
                                              .env_files = {"OTHER='x\nBINDERY_LISTEN=\"h:1\n"},
                                              .env_file_names = {".env"}},
                     &problems);
    cr_assert_null(config);
    cr_assert_str_eq(buf_text(&problems),
                     "BINDERY_LISTEN (from .env): its quoted value has no end; expected host:port, "
                     "[v6]:port or unix:/path, several separated by commas\n");
}

Test(config, printing)
{
    struct buf out = {0};

    cr_assert(parse("DIFY_AGENT_API_TOKEN=tok", "BINDERY_BACKEND_PROXY=http://u:p@proxy:3128",
                    "BINDERY_INSTANCE_ID=it's $5", "BINDERY_LEASE_TTL_SECONDS=0.25"));
    config_print(config, &out);
    cr_assert_not_null(strstr(out.data, "\nDIFY_AGENT_API_TOKEN=***\n"));
    cr_assert_not_null(strstr(out.data, "\nBINDERY_BACKEND_PROXY=http://***@proxy:3128\n"));
    cr_assert_not_null(strstr(out.data, "\nBINDERY_INSTANCE_ID=\"it's $5\"\n"));
    cr_assert_not_null(strstr(out.data, "\nBINDERY_LEASE_TTL_SECONDS=0.25\n"));
    cr_assert_not_null(strstr(out.data, "\n# BINDERY_LEDGER_URL is not set\n"));
    cr_assert_not_null(strstr(out.data, "\nBINDERY_ACCESS_LOG=true\n"));
    cr_assert_not_null(strstr(out.data, "\nBINDERY_LISTEN=127.0.0.1:5050\n"));
    cr_assert(strncmp(out.data, "DIFY_AGENT_RUNTIME_BACKEND=local\n", 33) == 0);
    buf_fini(&out);
}

Test(config, document)
{
    struct buf out = {0};

    config_document(&out);
    cr_assert_not_null(strstr(out.data, "| `BINDERY_LOG_LEVEL` | `info` | one of "
                                        "debug\\|info\\|warn\\|error | "));
    cr_assert_not_null(strstr(out.data, "| `DIFY_AGENT_E2B_API_KEY` | required | "));
    buf_fini(&out);
}

Test(config, secrets_are_registered)
{
    char text[] = "tok-12345 ledger-pw p%40ss p@ss nothing";

    cr_assert(parse("DIFY_AGENT_API_TOKEN=tok-12345",
                    "BINDERY_LEDGER_URL=postgresql://u:ledger-pw@h/db",
                    "BINDERY_BACKEND_PROXY=http://u:p%40ss@proxy", NULL));
    config_register_secrets(config);
    log_scrub(text);
    cr_assert_str_eq(text, "*** *** *** *** nothing");
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    cr_assert_not_null(f);
    fputs(text, f);
    fclose(f);
}

Test(config, loading_from_the_working_directory)
{
    char folder[] = "/tmp/bindery-config-XXXXXX";

    cr_assert_not_null(mkdtemp(folder));
    cr_assert(eq(int, chdir(folder), 0));
    setenv("HOME", "/home/me", 1);
    setenv("BINDERY_LISTEN", "127.0.0.1:1", 1);
    mkdir("dify-agent", 0700);
    write_file(".env", "BINDERY_LISTEN=127.0.0.1:2\nBINDERY_MAX_LEASES=2\n");
    write_file("dify-agent/.env", "BINDERY_MAX_LEASES=3\nBINDERY_GC_CONCURRENCY=3\n");
    config = config_load(&problems);
    cr_assert_not_null(config, "%s", buf_text(&problems));
    cr_assert_str_eq(config->listen, "127.0.0.1:1");
    cr_assert(eq(i64, config->max_leases, 2));
    cr_assert(eq(i64, config->gc_concurrency, 3));

    unlink(".env");
    mkdir(".env", 0700);
    cr_assert_null(config_load(&problems));
    cr_assert_not_null(strstr(buf_text(&problems), ".env: is not a regular file"));
    rmdir(".env");
    unlink("dify-agent/.env");
    rmdir("dify-agent");
    rmdir(folder);
}
