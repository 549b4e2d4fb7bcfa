typedef int test_support_is_empty;
