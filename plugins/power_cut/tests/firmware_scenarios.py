"""Scenarios of the firmware's state machine in virtual time, as plain functions that MicroPython runs too.

Run it on MicroPython as ``micropython -X heapsize=8m firmware_scenarios.py FOLDER_OF_THE_FIRMWARE``.
"""

import random
import struct
import sys

if __name__ == "__main__":
    sys.path.append(sys.argv[1])
    import power_cut as firmware
else:
    from rlenv_power_cut.firmware import power_cut as firmware


class Bench(firmware.Board):
    """A board in virtual time, and a host that answers its challenges."""

    def __init__(self, settings=b"", start=0):
        self.now, self.on, self.stop, self.confirm, self.mv = start, None, False, False, 0xFFFF
        self.reads_nothing = False
        self.inbox, self.flash, self.answering = b"", settings, True
        self.sent = []  # what the host sent, as (time, frame)
        self.status, self.statuses, self.arriving = None, [], []
        self.delay = 0
        self.machine = firmware.PowerCut(self, settings)

    def now_ms(self):
        return self.now & 0x3FFFFFFF

    def supply(self, on):
        self.on = on

    def buttons(self):
        return self.stop, self.confirm

    def output_mv(self):
        return self.mv

    def read(self):
        data, self.inbox = self.inbox[:32], self.inbox[32:]
        return data

    def write(self, data):
        if self.reads_nothing:
            return False
        assert len(data) == firmware.STATUS_SIZE
        fields = struct.unpack(firmware.STATUS_FORMAT, data[:-2])
        assert firmware.crc16(data[:-2]) == data[-2] | data[-1] << 8
        self.status = fields
        self.statuses.append((self.now, fields[2]))
        if self.answering:
            self.send(firmware.HEARTBEAT)
        return True

    def random(self):
        return 123456789

    def save(self, settings):
        self.flash = settings

    def send(self, kind, value=0, challenge=None):
        frame = firmware.host_frame(kind, self.status[2] if challenge is None else challenge, value)
        self.sent.append((self.now, frame))
        self.arriving.append((self.now + self.delay, frame))

    def run(self, ms, each=None):
        """Let time pass; return when the supply went off, or None."""
        went_off = None
        for _ in range(ms):
            self.now += 1
            if each is not None:
                each()
            while self.arriving and self.arriving[0][0] <= self.now:
                self.inbox += self.arriving.pop(0)[1]
            was_on = self.on
            self.machine.poll()
            if was_on and not self.on and went_off is None:
                went_off = self.now
        return went_off

    @property
    def cause(self):
        return self.status[4]

    @property
    def refusal(self):
        return self.status[5]

    @property
    def cuts(self):
        return self.status[7]

    def switch_on(self):
        """Prove that the host lives, switch on, and check that it worked."""
        self.answering = True
        self.run(max(self.machine.cut_ms, 50))
        self.command(firmware.ON, self.cuts)
        self.run(max(self.machine.cut_ms, 50))
        assert self.on, firmware.REFUSALS[self.refusal]

    def command(self, kind, value):
        """Send a command that names the newest challenge, before a heartbeat uses it up."""
        self.answering = False
        count = len(self.statuses)
        while len(self.statuses) == count:
            self.run(1)
        self.send(kind, value)
        self.send(firmware.HEARTBEAT)
        self.answering = True
        self.run(3)


def switched_on(settings=b"", start=0):
    bench = Bench(settings, start)
    bench.switch_on()
    return bench


def settings_for(cut_ms, confirm=False):
    value = struct.pack("<H", cut_ms | (firmware.CONFIRM_FLAG if confirm else 0))
    return value + struct.pack("<H", firmware.crc16(value))


def newest_proof(bench, until):
    """Return when the newest challenge was sent that the host had answered by a time."""
    answered = {struct.unpack("<I", frame[2:6])[0] for at, frame in bench.sent if at <= until}
    return max(at for at, challenge in bench.statuses if challenge in answered and at <= until)


def scenario_it_starts_off_and_heartbeats_alone_switch_nothing_on():
    bench = Bench()
    bench.run(5000)
    assert bench.on is False
    assert bench.cause == firmware.START
    assert bench.status[9] < firmware.DEFAULT_MS  # the heartbeats arrive


def scenario_on_needs_heartbeats_before_it():
    bench = Bench()
    bench.answering = False
    bench.run(300)
    bench.send(firmware.ON, 0)
    bench.run(3)
    assert not bench.on
    assert bench.refusal == firmware.NO_HEARTBEAT
    bench.switch_on()


def scenario_one_heartbeat_sent_three_times_counts_once():
    bench = Bench()
    bench.answering = False
    bench.run(300)
    for _ in range(3):
        bench.send(firmware.HEARTBEAT)
    bench.command(firmware.ON, 0)
    assert not bench.on
    assert bench.refusal == firmware.NO_HEARTBEAT


def scenario_a_command_by_an_old_challenge_is_ignored():
    bench = Bench()
    bench.answering = False
    bench.run(100)
    old = bench.status[2]
    bench.run(bench.machine.cut_ms + 1)
    bench.send(firmware.SET, 500, challenge=old)
    bench.run(50)
    assert bench.machine.cut_ms == firmware.DEFAULT_MS
    bench.send(firmware.SET, 500)
    bench.run(50)
    assert bench.machine.cut_ms == 500


def scenario_damaged_frames_do_nothing():
    for place in range(firmware.HOST_SIZE):
        bench = switched_on()
        send = bench.send

        def damaged(kind, value=0, challenge=None, bench=bench, send=send, place=place):
            send(kind, value, challenge)
            at, frame = bench.arriving.pop()
            frame = frame[:place] + bytes((frame[place] ^ 0x10,)) + frame[place + 1 :]
            bench.arriving.append((at, frame))

        bench.send = damaged
        damaged(firmware.OFF)
        assert bench.run(10) is None, "a damaged OFF cut"
        assert bench.run(2 * bench.machine.cut_ms) is not None, "damaged heartbeats kept it on"
        assert bench.cause == firmware.SILENCE


def scenario_a_silent_host_loses_the_supply_in_the_cut_time():
    for cut_ms in (20, 50, 100, 200, 777, 2000):
        for phase in range(0, 40, 7):
            bench = switched_on(settings_for(cut_ms))
            bench.run(phase + 1)
            bench.answering = False
            died = bench.now
            bench.arriving = []
            off = bench.run(3 * cut_ms)
            assert off is not None
            assert off - died <= cut_ms - firmware.RELEASE_MS, (cut_ms, off - died)
            assert off - died >= cut_ms - firmware.RELEASE_MS - bench.machine.period_ms - 1, (cut_ms, off - died)
            assert bench.cause == firmware.SILENCE
            assert bench.cuts == 1
            bench.answering = True
            bench.run(3000)  # a host that comes back gets nothing
            assert not bench.on


def scenario_old_frames_replayed_prove_nothing():
    bench = switched_on()
    bench.run(1000)
    bench.answering = False
    frames = [frame for _, frame in bench.sent]
    died = bench.now
    order = iter(frames * 20)

    def replay():
        if bench.now % 3 == 0:
            bench.inbox += next(order)

    off = bench.run(1000, replay)
    assert off is not None
    assert off - died <= bench.machine.cut_ms
    bench.run(1000, replay)  # the frame ON is among them
    assert not bench.on


def scenario_the_last_frame_repeated_for_ever_proves_nothing():
    bench = switched_on()
    bench.answering = False
    last, died = bench.sent[-1][1], bench.now

    def repeat():
        bench.inbox += last

    off = bench.run(1000, repeat)
    assert off is not None
    assert off - died <= bench.machine.cut_ms


def scenario_the_board_s_own_bytes_sent_back_prove_nothing():
    bench = switched_on()
    bench.answering = False
    write, died = bench.write, bench.now

    def mirror(data):
        bench.inbox += data
        return write(data)

    bench.write = mirror
    off = bench.run(1000)
    assert off is not None
    assert off - died <= bench.machine.cut_ms


def scenario_noise_switches_nothing_on_and_keeps_nothing_on():
    random.seed(1)
    bench = switched_on()
    bench.answering = False
    died = bench.now

    def noise():
        bench.inbox += bytes(random.getrandbits(8) for _ in range(20))
        if bench.now % 5 == 0:  # with right beginnings
            bench.inbox += bytes((firmware.SYNC, firmware.HEARTBEAT)) + bytes(random.getrandbits(8) for _ in range(8))
            bench.inbox += bytes((firmware.SYNC, firmware.ON)) + bytes(random.getrandbits(8) for _ in range(8))

    off = bench.run(1000, noise)
    assert off is not None
    assert off - died <= bench.machine.cut_ms
    bench.run(1000, noise)
    assert not bench.on
    bench.inbox = b""
    bench.switch_on()  # and it still understands frames


def scenario_heartbeats_count_from_their_challenge_so_a_slow_line_cuts():
    bench = switched_on(settings_for(200))
    bench.delay = 100
    assert bench.run(2000) is None
    bench.delay = 195
    assert bench.run(2000) is not None


def scenario_buffered_heartbeats_of_a_dead_host_prove_nothing():
    bench = switched_on(settings_for(200))
    bench.delay = 120  # 120 ms of heartbeats are on their way when it dies
    bench.run(1000)
    bench.answering = False
    died = bench.now
    off = bench.run(1000)
    assert off is not None
    assert off - died <= 200


def scenario_a_board_that_was_held_up_cuts_although_heartbeats_wait():
    bench = switched_on(settings_for(200))
    bench.now += 400
    for _ in range(3):
        bench.send(firmware.HEARTBEAT)
    assert bench.run(5) is not None
    assert bench.cause == firmware.SILENCE


def scenario_the_stop_button_cuts_and_refuses():
    bench = switched_on()
    pressed = bench.now
    bench.stop = True
    off = bench.run(100)
    assert off is not None
    assert off - pressed <= firmware.DEBOUNCE_MS + 1
    assert bench.cause == firmware.BUTTON
    bench.command(firmware.ON, bench.cuts)
    assert not bench.on
    assert bench.refusal == firmware.STOP_BUTTON
    bench.stop = False
    bench.run(1000)
    assert not bench.on  # letting it go switches nothing on
    bench.switch_on()


def scenario_a_spike_on_the_button_s_wire_cuts_nothing():
    bench = switched_on()

    def spike():
        bench.stop = bench.now % 10 < 3

    assert bench.run(1000, spike) is None


def scenario_the_confirm_button_is_pressed_after_each_cut():
    bench = Bench(settings_for(200, confirm=True))

    def refused():
        bench.command(firmware.ON, bench.cuts)
        assert not bench.on
        assert bench.refusal == firmware.UNCONFIRMED

    bench.run(500)
    refused()
    bench.confirm = True
    bench.run(20)
    bench.confirm = False
    bench.run(20)
    refused()  # too short
    bench.confirm = True
    bench.run(100)
    refused()  # not let go yet
    bench.confirm = False
    bench.run(5)
    bench.switch_on()
    bench.send(firmware.OFF)
    bench.run(5)
    assert not bench.on
    refused()  # that press is used up
    bench.confirm = True
    bench.run(100)
    bench.confirm = False
    bench.run(firmware.CONFIRMED_MS + 10)
    refused()  # too long ago


def scenario_a_confirm_button_that_is_stuck_from_the_start_confirms_nothing():
    bench = Bench(settings_for(200, confirm=True))
    bench.confirm = True
    bench.run(5000)
    bench.command(firmware.ON, 0)
    assert bench.refusal == firmware.UNCONFIRMED
    bench.confirm = False
    bench.run(50)
    bench.command(firmware.ON, 0)
    assert bench.refusal == firmware.UNCONFIRMED


def scenario_on_names_the_newest_cut():
    bench = switched_on()
    bench.send(firmware.OFF)
    bench.run(300)
    assert bench.cause == firmware.HOST
    bench.command(firmware.ON, 0)
    assert not bench.on
    assert bench.refusal == firmware.OTHER_CUT
    bench.command(firmware.ON, 1)
    assert bench.on


def scenario_off_needs_no_challenge():
    bench = switched_on()
    bench.send(firmware.OFF, challenge=0)
    assert bench.run(3) is not None


def scenario_settings_have_limits_and_stay():
    bench = Bench()
    bench.run(300)
    for wrong in (0, 19, 2001, 0x7FFF):
        bench.command(firmware.SET, wrong)
        assert bench.refusal == firmware.LIMITS, wrong
        assert bench.machine.cut_ms == firmware.DEFAULT_MS
    bench.command(firmware.SET, 150 | firmware.CONFIRM_FLAG)
    assert bench.refusal == firmware.ACCEPTED
    assert bench.status[8] == 150
    again = Bench(bench.flash)
    assert (again.machine.cut_ms, again.machine.needs_button) == (150, True)
    for damaged in (b"", bench.flash[:3], b"\x00" + bench.flash[1:], bench.flash + b"\x00"):
        assert Bench(damaged).machine.cut_ms == firmware.DEFAULT_MS


def scenario_settings_do_not_change_while_the_supply_is_on():
    bench = switched_on()
    bench.command(firmware.SET, 2000)
    assert bench.refusal == firmware.ALREADY_ON
    assert bench.machine.cut_ms == firmware.DEFAULT_MS
    assert bench.on


def scenario_an_output_that_is_live_while_off_is_refused():
    bench = Bench()
    bench.mv = 7400
    bench.run(firmware.DISCHARGED_MS + 100)
    bench.command(firmware.ON, 0)
    assert not bench.on
    assert bench.refusal == firmware.OUTPUT_LIVE
    bench.mv = 100
    bench.switch_on()


def scenario_a_restart_is_off_and_says_so():
    bench = switched_on()
    bench.machine = firmware.PowerCut(bench, bench.flash, True)
    assert bench.on is False
    bench.run(300)
    assert not bench.on
    assert bench.cause == firmware.RESTART


def scenario_the_clock_wraps():
    bench = switched_on(start=0x3FFFFFFF - 800)
    assert bench.run(2000) is None
    bench.answering = False
    died = bench.now
    off = bench.run(1000)
    assert off is not None
    assert off - died <= bench.machine.cut_ms


def scenario_a_host_that_reads_nothing_is_asked_nothing():
    bench = switched_on()
    bench.reads_nothing = True
    died = bench.now
    off = bench.run(1000)
    assert off is not None
    assert off - died <= bench.machine.cut_ms


def scenario_challenges_do_not_come_again():
    bench = Bench(settings_for(20))
    bench.answering = False
    bench.run(10000)
    challenges = [challenge for _, challenge in bench.statuses]
    assert len(challenges) > 2400
    assert len(set(challenges)) == len(challenges)


def scenario_random_hosts_never_get_more_than_the_cut_time(steps=60):
    """While the supply is on, the host has answered a challenge that is younger than the cut time, and has asked for
    it."""
    for seed in range(steps):
        random.seed(seed)
        bench = Bench(settings_for((20, 60, 200)[seed % 3]))
        bench.run(100)
        asked = False
        for _ in range(120):
            act = random.getrandbits(8) % 9
            if act < 3:
                bench.answering = act > 0
            elif act == 3:
                bench.command(firmware.ON, bench.cuts)
                asked = True
            elif act == 4:
                bench.inbox += bench.sent[random.getrandbits(16) % len(bench.sent)][1] if bench.sent else b""
            elif act == 5:
                bench.inbox += bytes(random.getrandbits(8) for _ in range(random.getrandbits(5)))
            elif act == 6:
                bench.delay = random.getrandbits(7)
            elif act == 7:
                bench.stop = random.getrandbits(2) == 0
            else:
                bench.now += random.getrandbits(6)
            for _ in range(1 + random.getrandbits(5)):
                bench.run(1)
                if bench.on:
                    assert asked, "nobody asked for it"
                    assert bench.now - newest_proof(bench, bench.now) < bench.machine.cut_ms, (seed, bench.now)
            bench.sent, bench.statuses = bench.sent[-200:], bench.statuses[-200:]


SCENARIOS = [value for name, value in sorted(globals().items()) if name.startswith("scenario_")]

if __name__ == "__main__":
    for scenario in SCENARIOS:
        if scenario is scenario_random_hosts_never_get_more_than_the_cut_time:
            scenario(10)
        else:
            scenario()
    print(len(SCENARIOS), "scenarios passed")
