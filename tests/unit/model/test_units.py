import pytest

from spillover.model import units
from spillover.model.units import (
    DAY,
    FOREVER,
    HOUR,
    MINUTE,
    SECOND,
    UnitError,
    format_cpu,
    format_duration,
    format_memory,
    format_money,
    format_time,
    money_digits,
    parse_cpu,
    parse_duration,
    parse_memory,
    parse_money,
    parse_time,
    so_many,
    write_duration,
    write_memory,
)


@pytest.mark.parametrize(
    ("text", "milli"), [("2", 2000), ("1.5", 1500), ("500m", 500), ("0", 0), ("0.001", 1), ("010", 10_000)]
)
def test_cpus_are_counted_in_thousandths(text: str, milli: int) -> None:
    assert parse_cpu(text) == milli


@pytest.mark.parametrize("text", ["", "-1", "1e3", "0.0001", "0.5m", "2 ", "٣", "x", "1" * 41])
def test_what_is_no_number_of_cpus_is_refused(text: str) -> None:
    with pytest.raises(UnitError):
        parse_cpu(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1048576", 2**20),
        ("2Gi", 2**31),
        ("2G", 2 * 10**9),
        ("2GB", 2 * 10**9),
        ("1k", 1000),
        ("1K", 1000),
        ("1Ki", 1024),
        ("1.5Mi", 1536 * 1024),
        ("129e6", 129 * 10**6),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("0.5", 1),
    ],
)
def test_memory_is_counted_in_bytes_and_rounded_up(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "-1Gi", "2Qi", "1ki", "Gi", "1e999", "nan", "inf", "1 Gi", "9" * 41])
def test_what_is_no_memory_is_refused(text: str) -> None:
    with pytest.raises(UnitError):
        parse_memory(text)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("90s", 90 * SECOND),
        ("1h30m", 90 * MINUTE),
        ("2d", 2 * DAY),
        ("1.5h", 90 * MINUTE),
        ("5ms", 5 * 10**6),
    ],
)
def test_durations_are_counted_in_nanoseconds(text: str, time: int) -> None:
    assert parse_duration(text) == time


@pytest.mark.parametrize("text", ["", "90", "-5s", "1h 30m", "h", "1:30", "1y", "1s" * 30])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UnitError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(("text", "amount"), [("5.00", 5_000_000), ("0", 0), ("-1", -1_000_000), ("1e-7", 1)])
def test_money_is_counted_in_millionths_and_rounded_up(text: str, amount: int) -> None:
    assert parse_money(text) == amount


@pytest.mark.parametrize("text", ["", "nan", "Infinity", "1e999999", "1_000", " 5", "٣", "5 USD", "9" * 41])
def test_what_is_no_money_is_refused(text: str) -> None:
    with pytest.raises(UnitError, match="is not an amount of money"):
        parse_money(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2027-01-31T18:00:00Z", "2027-01-31T18:00:00.000000Z"),
        ("2027-01-31T18:00:00.123456789+02:00", "2027-01-31T16:00:00.123456Z"),
        ("2027-01-31t18:00:00z", "2027-01-31T18:00:00.000000Z"),
    ],
)
def test_times_are_read_with_their_zone(text: str, shown: str) -> None:
    assert format_time(parse_time(text)) == shown


@pytest.mark.parametrize(
    "text", ["", "2027-01-31", "2027-01-31T18:00:00", "2027-13-31T18:00:00Z", "20270131T180000Z", "now"]
)
def test_what_is_no_time_with_a_zone_is_refused(text: str) -> None:
    with pytest.raises(UnitError, match="is not a time with a zone"):
        parse_time(text)


@pytest.mark.parametrize(
    "text", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59", "1969-12-31T23:59:59Z"]
)
def test_times_that_no_store_can_hold_are_refused(text: str) -> None:
    with pytest.raises(UnitError, match="between the years"):
        parse_time(text)


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0, "0s"),
        (5 * 10**6, "5ms"),
        (SECOND // 2, "0.5s"),
        (90 * SECOND, "1m30s"),
        (HOUR, "1h"),
        (59 * SECOND + 600 * 10**6, "1m"),
        (DAY + HOUR + MINUTE, "1d1h"),
        (FOREVER, "forever"),
    ],
)
def test_durations_are_shown_in_their_two_largest_units(time: int, text: str) -> None:
    assert format_duration(time) == text


def test_amounts_are_shown_as_people_say_them() -> None:
    assert format_memory(3 * 2**30 // 2) == "1.5Gi"
    assert format_memory(2**60) == "1Ei"
    assert format_memory(100) == "100"
    assert format_cpu(1500) == "1.5"
    assert format_cpu(2000) == "2"
    assert format_money(5_000_000, "USD") == "5.00 USD"
    assert format_money(1234) == "0.0012"
    assert format_money(5_000_000, digits=money_digits(5_000_000, 1234, 0)) == "5.0000"
    assert format_money(5_000_000, digits=money_digits(5_000_000, 0)) == "5.00"


@pytest.mark.parametrize("time", [0, 1, 1500, SECOND, 90 * MINUTE, DAY + 1, 3650 * DAY])
def test_a_written_duration_reads_as_the_same(time: int) -> None:
    assert parse_duration(write_duration(time)) == time


@pytest.mark.parametrize("size", [0, 1, 1000, 1024, 2**30, 2**30 + 1, 2**60 - 1, 2**60])
def test_written_memory_reads_as_the_same(size: int) -> None:
    assert parse_memory(write_memory(size)) == size


def test_long_text_is_shortened_in_an_error() -> None:
    with pytest.raises(UnitError) as error:
        units.parse_cpu("x" * 10_000)
    assert len(str(error.value)) < 200


def test_one_of_something_is_not_many() -> None:
    assert [so_many(count) for count in (0, 1, 2, 3000)] == ["0 jobs", "1 job", "2 jobs", "3,000 jobs"]
    assert so_many(1, "member") == "1 member"
