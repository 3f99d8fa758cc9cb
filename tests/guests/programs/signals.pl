#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
# Perl's handlers of signals, in both of its ways, and its ways to start programs.
use strict;
use warnings;
use POSIX qw(:signal_h :sys_wait_h);

$| = 1;
for my $name (qw(TERM INT USR1 USR2 HUP)) {
	my $came = 0;
	my $before = $SIG{$name};
	local $SIG{$name} = sub { $came++ };
	kill $name, $$;
	print "$name: was ", defined $before ? $before : "undefined", ", came $came times\n";
	$SIG{$name} = 'IGNORE';
	kill $name, $$;
	print "  came $came times\n";
}
my $unsafe = 0;
my $action = POSIX::SigAction->new(sub { $unsafe++ }, POSIX::SigSet->new(SIGHUP), SA_RESTART);
my $old = POSIX::SigAction->new;
sigaction(SIGTERM, $action, $old);
kill 'TERM', $$;
sigaction(SIGTERM, undef, $old);
print "unsafe: $unsafe times, HUP ", $old->mask->ismember(SIGHUP) ? "blocked" : "free", "\n";

print "system: ", system("exit 3") >> 8, "\n";
print "backticks: ", `echo from a shell`;
open(my $pipe, '-|', 'echo', 'from a pipe') or die;
print <$pipe>;
close $pipe;
{
	my $children = 0;
	local $SIG{CHLD} = sub { $children++ while waitpid(-1, WNOHANG) > 0 };
	for (1 .. 5) {
		my $pid = fork // die;
		POSIX::_exit(0) if !$pid;
	}
	my $end = time + 60;
	select(undef, undef, undef, 0.01) while $children < 5 && time < $end;
	print "$children children\n";
}
eval {
	local $SIG{ALRM} = sub { die "alarm\n" };
	alarm 1;
	select(undef, undef, undef, 60);
};
print "ended by $@";
my $pid = fork // die;
if (!$pid) {
	$SIG{TERM} = 'DEFAULT';
	kill 'TERM', $$;
	exit 1;
}
waitpid($pid, 0);
print "a child ended by signal ", $? & 127, "\n";
$SIG{TERM} = 'DEFAULT';
kill 'TERM', $$;
